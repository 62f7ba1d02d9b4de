#pragma once

/// Elementary functions with equal bits on every backend.
#include "pulsora/detail/numerics/math.h"
