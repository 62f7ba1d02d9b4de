#pragma once

/// The device model PowStep: the step is a power of the distance to the bound.
#include "pulsora/detail/devices/pow_step.h"
