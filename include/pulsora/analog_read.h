#pragma once

/// The analog product y = W x with converters, noise and bounds, in blocks for large arrays.
#include "pulsora/detail/periphery/analog_read.h"
