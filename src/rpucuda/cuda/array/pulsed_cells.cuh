#pragma once

#include "cuda/array/model_kernels.cuh"
#include "cuda/core/launch.cuh"

// The kernels of a built-in model.

namespace pulsora {

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
    pulsora::launch(stream, code, blocks, threads, 0, arguments...);
  }
  static void clear(void *data, size_t bytes, void *stream) {
    BatchedLaunches::enqueue([=] {
      PULSORA_CUDA_CHECK(cudaMemsetAsync(data, 0, bytes, static_cast<cudaStream_t>(stream)));
    });
  }
  static bool multipliesBits() {
    int device = 0;
    int major = 0;
    PULSORA_CUDA_CHECK(cudaGetDevice(&device));
    PULSORA_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    return major >= 8;
  }
};

}  // namespace gpu

template <class Device>
const PulsedKernels &cudaKernels() {
  return gpu::ModelLaunches<Device, gpu::BuiltInLauncher<Device>>::kTable;
}

}  // namespace pulsora
