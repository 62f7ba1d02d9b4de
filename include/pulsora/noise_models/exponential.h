#pragma once

/// The noise model Exponential: cells that leak towards a resting conductance.
#include "pulsora/detail/noise_models/exponential.h"
