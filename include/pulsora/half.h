#pragma once

/// `Half`: 16-bit floats and their conversion.
#include "pulsora/detail/numerics/half.h"
