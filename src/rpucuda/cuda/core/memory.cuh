#pragma once

#include <cuda_runtime.h>

namespace RPU {

/// Frees what was released while `stream` was being captured. The graph may use such memory: call
/// this once it has been launched or given up.
void releaseCaptured(void *stream) noexcept;

/// During its lifetime, allows calls that a capture by this thread would refuse.
struct CaptureAside {
  CaptureAside() { cudaThreadExchangeStreamCaptureMode(&mode); }
  ~CaptureAside() { cudaThreadExchangeStreamCaptureMode(&mode); }
  CaptureAside(const CaptureAside &) = delete;
  CaptureAside &operator=(const CaptureAside &) = delete;

  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
};

}  // namespace RPU
