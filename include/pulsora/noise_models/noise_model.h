#pragma once

/// The contract of a noise model, and the parameters that all models have.
#include "pulsora/detail/noise_models/noise_model.h"
