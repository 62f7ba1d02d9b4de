#pragma once

#include "pulsora/detail/numerics/math.h"
