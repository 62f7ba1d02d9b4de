#pragma once

#include <cuda_runtime.h>

namespace RPU {

/// Gives back what was released while `stream` was being captured. Such memory may still be named
/// by the graph, so it must wait until that has been launched.
void releaseCaptured(void *stream) noexcept;

/// Lets calls through that a capture by this thread would refuse, while it lives.
struct CaptureAside {
  CaptureAside() { cudaThreadExchangeStreamCaptureMode(&mode); }
  ~CaptureAside() { cudaThreadExchangeStreamCaptureMode(&mode); }
  CaptureAside(const CaptureAside &) = delete;
  CaptureAside &operator=(const CaptureAside &) = delete;

  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
};

}  // namespace RPU
