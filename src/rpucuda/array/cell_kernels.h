#pragma once

#include <algorithm>

#include "array/device_model.h"
#include "core/backend.h"
#include "core/cuda_api.h"

// Calls of a device model's kernels for all cells of an array.

namespace pulsora {

/// The model's kernels for the context's backend; DeviceError if a GPU has none.
inline const PulsedKernels &kernelsOf(const DeviceModel &model, const Context &context) {
  if (context.onCpu()) return model.cpu(context.cpu.isa);
  const PulsedKernels *kernels = model.cuda();
  PULSORA_CHECK(
      DeviceError, kernels, "the device model '", model.name,
      "' has no kernels for a GPU; use the CPU, or build Pulsora with CUDA and with the model in "
      "PULSORA_EXTRA_DEVICES");
  return *kernels;
}

/// Work per cell, as `steps` of overCells(), of everything but a pulsed update.
constexpr int64_t kCellSteps = 8;

/// Calls kernel(begin, end, stream) over all cells: on threads of the CPU, or once on the GPU's
/// stream. `steps` is the work per cell, roughly in steps of a device.
template <class Kernel>
void overCells(const Context &context, int64_t size, int64_t steps, const Kernel &kernel) {
  if (context.onCpu()) {
    const int64_t grain =
        std::max<int64_t>(1024, 2 * kStepsPerThread / std::max<int64_t>(1, steps));
    parallelRange(context, size, grain,
                  [&](int64_t begin, int64_t end) { kernel(begin, end, nullptr); });
  } else {
    const CudaScope scope(context.device);
    kernel(0, size, context.stream);
  }
}

}  // namespace pulsora
