#pragma once

/// Response shared by device models whose step depends on the place between the bounds.
#include "pulsora/detail/devices/range_response.h"
