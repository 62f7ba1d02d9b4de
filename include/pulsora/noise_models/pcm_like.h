#pragma once

/// The noise model PCMLike: phase-change memory.
#include "pulsora/detail/noise_models/pcm_like.h"
