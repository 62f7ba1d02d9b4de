#pragma once

/// GPU kernels of forEach() and sumRows(), for functors of your own in a .cu file.
#include "pulsora/detail/cuda/core/for_each.cuh"
