#pragma once

#include <cuda_runtime.h>

#include "core/check.h"
#include "core/context.h"
#include "core/cuda_api.h"

namespace RPU {

/// Throws OutOfMemoryError or DeviceError unless `status` is success. Clears the runtime's last
/// error, so that the next call does not find it again.
void checkCuda(cudaError_t status, const char *call);

inline cudaStream_t streamOf(const Context &context) {
  return static_cast<cudaStream_t>(context.stream);
}

/// Number of blocks of `threads` that cover `size`, at most a grid of some waves on any GPU;
/// kernels stride over the rest.
inline unsigned gridFor(int64_t size, int threads, int64_t most = int64_t{1} << 20) {
  const int64_t blocks = (size + threads - 1) / threads;
  return static_cast<unsigned>(blocks < most ? blocks : most);
}

}  // namespace RPU

/// Every call of the CUDA runtime goes through this.
#define RPU_CUDA(call) ::RPU::checkCuda((call), #call)
