#pragma once

/// The device model ConstantStep: every pulse changes the weight by the same amount.
#include "pulsora/detail/devices/constant_step.h"
