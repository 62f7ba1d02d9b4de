#pragma once

/// CUDA C++ compiled at run time by NVRTC.
#include "pulsora/detail/runtime/nvrtc.h"
