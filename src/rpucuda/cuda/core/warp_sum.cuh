#pragma once

namespace pulsora {

/// The sum over the lanes of a warp, in all lanes.
__device__ inline unsigned warpSum(unsigned value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_add_sync(0xFFFFFFFFU, value);
#else
#pragma unroll
  for (int other = 16; other > 0; other /= 2) value += __shfl_xor_sync(0xFFFFFFFFU, value, other);
  return value;
#endif
}

}  // namespace pulsora
