#pragma once

/// `TileGrid`: a matrix spread over tiles, read and updated by one call.
#include "pulsora/detail/tile/tile_grid.h"
