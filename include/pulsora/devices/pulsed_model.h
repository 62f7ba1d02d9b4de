#pragma once

/// Parts of every device model: `PulsedParams`, `PulsedCell` and `PulsedResponse`.
#include "pulsora/detail/devices/pulsed_model.h"
