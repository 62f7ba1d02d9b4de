#pragma once

#include "core/exec.h"
#include "core/platform.h"

namespace RPU {

/// Where and how an operation runs. Passed by argument to everything that computes; there is no current device and no
/// global thread count.
struct Context {
  Backend backend = Backend::Cpu;
  CpuExec cpu;               // threads, instruction set, kind of matrix products
  int device = 0;            // CUDA ordinal
  void *stream = nullptr;    // cudaStream_t of the caller; null is the default stream

  bool onCpu() const { return backend == Backend::Cpu; }
};

}  // namespace RPU
