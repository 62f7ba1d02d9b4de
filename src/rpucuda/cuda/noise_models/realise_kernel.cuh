#pragma once

#include "cuda/core/await.cuh"
#include "noise_models/realise_cells.h"

// The kernel of a noise model from source. NVRTC, which has neither CUDA's headers nor a host,
// reads it.

namespace pulsora {
namespace gpu {

/// Makes the groups [0, groups) of a realisation.
template <class Model>
__global__ void __launch_bounds__(256)
    realiseKernel(const __grid_constant__ Realise<Model> realise, int64_t groups) {
  awaitEarlier();
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < groups;
       i += stride)
    realise(i);
}

}  // namespace gpu
}  // namespace pulsora
