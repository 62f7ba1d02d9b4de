#pragma once

#include <cuda_runtime.h>

#include "core/check.h"
#include "core/context.h"
#include "core/cuda_api.h"
#include "cuda/core/grid.h"

namespace pulsora {

/// Throws OutOfMemoryError or DeviceError unless `status` is success. Clears the runtime's last
/// error, so that the next call does not find it again.
void checkCuda(cudaError_t status, const char *call);

inline cudaStream_t streamOf(const Context &context) {
  return static_cast<cudaStream_t>(context.stream);
}

}  // namespace pulsora

/// Checks a call of the CUDA runtime; every call goes through this macro.
#define PULSORA_CUDA_CHECK(call) ::pulsora::checkCuda((call), #call)
