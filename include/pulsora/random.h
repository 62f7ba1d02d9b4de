#pragma once

#include "pulsora/detail/numerics/random.h"
