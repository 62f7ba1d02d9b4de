#pragma once

#include "pulsora/detail/tile/tile_grid.h"
