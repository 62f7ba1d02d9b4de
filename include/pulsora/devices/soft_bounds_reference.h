#pragma once

#include "pulsora/detail/devices/soft_bounds_reference.h"
