#pragma once

/// Response shared by device models whose step is linear in the weight.
#include "pulsora/detail/devices/linear_response.h"
