#pragma once

/// The noise model Hermes: phase-change memory of the Hermes chip.
#include "pulsora/detail/noise_models/hermes.h"
