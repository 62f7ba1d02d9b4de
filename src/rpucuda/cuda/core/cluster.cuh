#pragma once

#include <cstdint>

// Clusters: neighbouring blocks that run at once and may write into each other's shared memory.
// GPUs before compute capability 9.0 have none; there each block is a cluster of its own.

namespace pulsora {

/// Blocks of a cluster on every GPU that has clusters.
constexpr int kMostBlocksOfCluster = 8;

/// Waits for all threads of the cluster; their writes into any block's shared memory are then
/// visible.
__device__ inline void syncCluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n\t"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
#else
  __syncthreads();
#endif
}

/// The counterpart, in block `rank` of the cluster, of `own` in this block's shared memory.
template <class T>
__device__ T *sharedOf(int rank, T *own) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  T *other = nullptr;
  asm("mapa.u64 %0, %1, %2;" : "=l"(other) : "l"(own), "r"(rank));
  return other;
#else
  return own;
#endif
}

}  // namespace pulsora
