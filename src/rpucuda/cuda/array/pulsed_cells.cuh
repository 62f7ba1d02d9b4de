#pragma once

#include "cuda/array/model_kernels.cuh"
#include "cuda/core/launch.cuh"

// The kernels of a built-in model.

namespace RPU {

/// The kernels of `Device`; instantiated by one generated source file per model.
template <class Device>
const PulsedKernels &cudaKernels();

namespace gpu {

template <class Device>
struct BuiltInLauncher {
  template <ModelKernel kernel, class... Arguments>
  static void launch(void *stream, unsigned blocks, unsigned threads,
                     const Arguments &...arguments) {
    void (*const code)(Arguments...) = codeOf<Device, kernel>();
    RPU::launch(stream, code, blocks, threads, 0, arguments...);
  }
  static void clear(void *data, size_t bytes, void *stream) {
    JoinedLaunches::enqueue(
        [=] { RPU_CUDA(cudaMemsetAsync(data, 0, bytes, static_cast<cudaStream_t>(stream))); });
  }
  static bool multipliesBits() {
    int device = 0;
    int major = 0;
    RPU_CUDA(cudaGetDevice(&device));
    RPU_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    return major >= 8;
  }
};

}  // namespace gpu

template <class Device>
const PulsedKernels &cudaKernels() {
  return gpu::ModelLaunches<Device, gpu::BuiltInLauncher<Device>>::kTable;
}

}  // namespace RPU
