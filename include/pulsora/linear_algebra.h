#pragma once

#include "pulsora/detail/linalg/initialise.h"
#include "pulsora/detail/linalg/math_util.h"
#include "pulsora/detail/linalg/packing.h"
