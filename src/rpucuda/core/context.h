#pragma once

#include <cstdint>

#include "core/exec.h"
#include "core/platform.h"

namespace RPU {

/// Where and how an operation runs. Passed by argument to everything that computes; there is no
/// current device and no global thread count.
struct Context {
  Backend backend = Backend::Cpu;
  CpuExec cpu;     // threads, instruction set, kind of matrix products
  int device = 0;  // CUDA ordinal
  /// cudaStream_t on which everything is enqueued; null is the default stream. It must outlive
  /// every object made with it.
  void *stream = nullptr;
  GpuProducts gpuProducts = GpuProducts::Single;
  /// On a GPU, a word in device memory that is set when a non-finite input is seen. While it is
  /// set, updates change nothing. Null: inputs are known to be finite.
  uint32_t *fault = nullptr;

  bool onCpu() const { return backend == Backend::Cpu; }
};

}  // namespace RPU
