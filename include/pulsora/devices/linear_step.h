#pragma once

/// The device model LinearStep: the step changes linearly with the weight.
#include "pulsora/detail/devices/linear_step.h"
