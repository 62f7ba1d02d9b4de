#pragma once

/// `TileProgramming`: programming and drift of a tile with `InferenceParams`.
#include "pulsora/detail/tile/tile_programming.h"
