#pragma once

/// The update W <- W - lr d^T x of an array by pulses.
#include "pulsora/detail/array/pulsed_weight_updater.h"
