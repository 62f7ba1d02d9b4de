#pragma once

/// `saveState` and `loadState`: states as files (safetensors), also read by Python.
#include "pulsora/detail/storage/state_file.h"
