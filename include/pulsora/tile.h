#pragma once

/// `Tile`: a crossbar tile with its periphery, and with it `TileConfig`, `Context` and the views.
#include "pulsora/detail/tile/tile.h"
