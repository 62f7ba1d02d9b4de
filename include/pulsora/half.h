#pragma once

#include "pulsora/detail/numerics/half.h"
