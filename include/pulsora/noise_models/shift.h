#pragma once

/// The law of a shift over time, and the model Shift: tables of a measured device.
#include "pulsora/detail/noise_models/shift.h"
