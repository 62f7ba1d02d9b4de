#pragma once

#include <utility>

#include "cuda/check.cuh"

// The one way in which kernels are launched. On a GPU that can do it (compute capability 9.0), a
// kernel's blocks are brought in while the last blocks of the kernel before it still work, and wait
// at awaitEarlier(): that hides a good part of a launch.

namespace RPU {

/// Waits until all work before this kernel has ended and can be seen. Every kernel must call it
/// before it reads or writes memory. (Letting the next kernel in before the end of this one, by
/// cudaTriggerProgrammaticLaunchCompletion(), was slower.)
__device__ inline void awaitEarlier() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

/// Whether the code that runs on the current device is made with awaitEarlier() in it.
bool launchesOverlap();

/// Launches kernel(arguments...) with `shared` bytes of dynamic shared memory.
template <class... Parameters, class... Arguments>
void launch(void *stream, void (*kernel)(Parameters...), dim3 grid, dim3 threads, size_t shared,
            Arguments &&...arguments) {
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &overlap;
  config.numAttrs = launchesOverlap() ? 1 : 0;
  RPU_CUDA(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

}  // namespace RPU
