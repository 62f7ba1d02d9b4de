#pragma once

/// The power law of drift, and the model PowerLaw: tables of a measured device.
#include "pulsora/detail/noise_models/power_law.h"
