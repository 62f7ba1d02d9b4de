#pragma once

/// The device model ExpStep: the step falls exponentially with the weight.
#include "pulsora/detail/devices/exp_step.h"
