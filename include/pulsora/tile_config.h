#pragma once

/// `TileConfig`: everything that defines a tile, except its sizes and seed.
#include "pulsora/detail/tile/tile_config.h"
