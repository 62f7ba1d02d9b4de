#pragma once

#include <cstdint>

namespace pulsora {

/// Whether this block is the last of `blocks` to get here; the last block sees the writes of the
/// others. `finished` is 0 before and after.
__device__ inline bool finishesLast(uint32_t *finished, unsigned blocks) {
  __shared__ bool isLast;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    isLast = atomicAdd(finished, 1u) + 1 == blocks;
    if (isLast) *finished = 0;
  }
  __syncthreads();
  if (isLast) __threadfence();
  return isLast;
}

}  // namespace pulsora
