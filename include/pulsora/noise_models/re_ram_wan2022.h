#pragma once

/// The noise model ReRamWan2022: resistive memory of the NeuRRAM chip.
#include "pulsora/detail/noise_models/re_ram_wan2022.h"
