#pragma once

/// Products, copies, packing and initialisation of matrices, on the CPU or a GPU.
#include "pulsora/detail/linalg/initialise.h"
#include "pulsora/detail/linalg/math_util.h"
#include "pulsora/detail/linalg/packing.h"
