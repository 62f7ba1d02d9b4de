#pragma once

#include <utility>

#include "cuda/core/await.cuh"
#include "cuda/core/check.cuh"

// Launches of kernels; every kernel goes through these. On a GPU that supports it (compute
// capability 9.0), a kernel's blocks are brought in while the last blocks of the previous kernel
// still work, and wait at awaitEarlier(): that hides a good part of a launch.

namespace RPU {

/// Whether the code that runs on the current device was compiled with awaitEarlier() active.
bool launchesOverlap();

namespace detail {

template <class... Parameters, class... Arguments>
void launchKernel(void *stream, void (*kernel)(Parameters...), dim3 grid, dim3 threads,
                  size_t shared, bool together, unsigned cluster, Arguments &&...arguments) {
  cudaLaunchAttribute attributes[3] = {};
  unsigned count = 0;
  if (launchesOverlap()) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (together) {
    attributes[count].id = cudaLaunchAttributeCooperative;
    attributes[count++].val.cooperative = 1;
  }
  if (cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {cluster, 1, 1};
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attributes;
  config.numAttrs = count;
  RPU_CUDA(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

}  // namespace detail

/// Launches kernel(arguments...) with `shared` bytes of dynamic shared memory.
template <class... Parameters, class... Arguments>
void launch(void *stream, void (*kernel)(Parameters...), dim3 grid, dim3 threads, size_t shared,
            Arguments &&...arguments) {
  detail::launchKernel(stream, kernel, grid, threads, shared, false, 1,
                       std::forward<Arguments>(arguments)...);
}

/// Launches a kernel whose blocks wait for one another: all are on the GPU at once.
template <class... Parameters, class... Arguments>
void launchTogether(void *stream, void (*kernel)(Parameters...), dim3 grid, dim3 threads,
                    Arguments &&...arguments) {
  detail::launchKernel(stream, kernel, grid, threads, 0, true, 1,
                       std::forward<Arguments>(arguments)...);
}

/// Launches a kernel whose blocks form clusters of `cluster` blocks (cuda/core/cluster.cuh).
template <class... Parameters, class... Arguments>
void launchClusters(void *stream, void (*kernel)(Parameters...), dim3 grid, dim3 threads,
                    size_t shared, unsigned cluster, Arguments &&...arguments) {
  detail::launchKernel(stream, kernel, grid, threads, shared, false, cluster,
                       std::forward<Arguments>(arguments)...);
}

}  // namespace RPU
