#pragma once

#include "pulsora/detail/cuda/core/for_each.cuh"
