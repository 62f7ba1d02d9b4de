#pragma once

/// `TileAdapter`: gated reads and updates, and transfers, of a tile with an adapter.
#include "pulsora/detail/tile/tile_adapter.h"
