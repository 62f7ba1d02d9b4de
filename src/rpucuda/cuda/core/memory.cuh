#pragma once

#include <cuda_runtime.h>

namespace pulsora {

/// Frees memory that was released while `stream` was being captured. The graph may use such memory:
/// call this once the graph has been launched or given up.
void releaseCaptured(void *stream) noexcept;

/// To be called when a capture of `stream` begins: memory that was released in the stream during
/// captures by others, whose graphs may live on, is never freed.
void forgetCaptured(void *stream);

/// During its lifetime, allows calls that a capture by this thread would refuse.
struct CaptureAside {
  CaptureAside() { cudaThreadExchangeStreamCaptureMode(&mode); }
  ~CaptureAside() { cudaThreadExchangeStreamCaptureMode(&mode); }
  CaptureAside(const CaptureAside &) = delete;
  CaptureAside &operator=(const CaptureAside &) = delete;

  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
};

}  // namespace pulsora
