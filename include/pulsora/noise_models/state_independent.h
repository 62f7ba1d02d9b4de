#pragma once

/// The noise model StateIndependent: noise that does not depend on the conductance.
#include "pulsora/detail/noise_models/state_independent.h"
