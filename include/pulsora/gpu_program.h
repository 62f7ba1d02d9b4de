#pragma once

#include "pulsora/detail/runtime/gpu_program.h"
