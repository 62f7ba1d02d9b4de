#pragma once

/// GPU code compiled at run time: loading, memory and launches.
#include "pulsora/detail/runtime/gpu_program.h"
