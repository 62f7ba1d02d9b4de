#pragma once

/// Devices, memory and streams of CUDA, as needed by host code.
#include "pulsora/detail/core/cuda_api.h"
