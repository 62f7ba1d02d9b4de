#pragma once

/// `IOParameters`: DAC, noise and ADC of a read.
#include "pulsora/detail/periphery/io_parameters.h"
