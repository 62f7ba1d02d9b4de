#pragma once

/// The device model PiecewiseStep: the step follows a measured curve between the bounds.
#include "pulsora/detail/devices/piecewise_step.h"
