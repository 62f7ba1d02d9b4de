#include <algorithm>
#include <array>
#include <atomic>

#include "core/cuda_api.h"
#include "cuda/core/launch.cuh"

namespace pulsora {
namespace {

/// Compiled for the same GPUs as all other kernels, so that its attributes show which these are.
__global__ void probeKernel() { awaitEarlier(); }

std::atomic<size_t> mostSharedBytes{0};

bool findOverlap() {
  cudaFuncAttributes attributes{};
  PULSORA_CUDA_CHECK(cudaFuncGetAttributes(&attributes, probeKernel));
  return attributes.ptxVersion >= 90;
}

}  // namespace

void limitSharedBytes(size_t bytes) { mostSharedBytes = bytes; }

size_t sharedBytesOf(int device) {
  int found = 0;
  PULSORA_CUDA_CHECK(
      cudaDeviceGetAttribute(&found, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  const auto bytes = static_cast<size_t>(found);
  const size_t limit = mostSharedBytes;
  return limit > 0 ? std::min(bytes, limit) : bytes;
}

bool launchesOverlap() {
  constexpr size_t kRemembered = 64;
  enum : int8_t { kUnknown, kNo, kYes };
  static std::array<std::atomic<int8_t>, kRemembered> answers{};
  int device = 0;
  PULSORA_CUDA_CHECK(cudaGetDevice(&device));
  if (static_cast<size_t>(device) >= kRemembered) return false;
  std::atomic<int8_t> &answer = answers[static_cast<size_t>(device)];
  if (answer == kUnknown) answer = findOverlap() ? kYes : kNo;
  return answer == kYes;
}

}  // namespace pulsora
