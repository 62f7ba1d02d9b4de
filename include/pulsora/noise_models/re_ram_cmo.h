#pragma once

/// The noise model ReRamCMO: resistive memory with a conductive metal oxide layer.
#include "pulsora/detail/noise_models/re_ram_cmo.h"
