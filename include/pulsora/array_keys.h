#pragma once

/// Keys of the random numbers of the arrays of a tile.
#include "pulsora/detail/array/array_keys.h"
