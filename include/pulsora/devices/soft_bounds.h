#pragma once

/// The device model SoftBounds: the step shrinks linearly and vanishes at the bound.
#include "pulsora/detail/devices/soft_bounds.h"
