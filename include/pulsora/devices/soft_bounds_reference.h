#pragma once

/// The device model SoftBoundsReference: SoftBounds read against a reference device.
#include "pulsora/detail/devices/soft_bounds_reference.h"
