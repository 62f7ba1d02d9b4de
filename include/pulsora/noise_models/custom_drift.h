#pragma once

/// The noise model CustomDrift: phase-change memory with a drift from tables.
#include "pulsora/detail/noise_models/custom_drift.h"
