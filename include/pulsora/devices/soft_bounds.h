#pragma once

#include "pulsora/detail/devices/soft_bounds.h"
