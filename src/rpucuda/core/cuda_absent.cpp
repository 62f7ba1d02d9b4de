// What core/cuda_api.h promises, in a build without the CUDA backend.
#ifndef PULSORA_CUDA

#include "core/check.h"
#include "core/cuda_api.h"

namespace RPU {
namespace {
[[noreturn]] void absent() {
  throw DeviceError(
      "device='cuda' was asked for, but this build of Pulsora has no CUDA backend; use "
      "device='cpu', or rebuild where "
      "nvcc is installed");
}
}  // namespace

int cudaDeviceCount() { return 0; }
void requireCudaDevice(int) { absent(); }
CudaScope::CudaScope(int) { absent(); }
CudaScope::~CudaScope() {}  // not trivial, because it is not where there is CUDA

namespace detail {
void *cudaAllocate(const Context &, size_t) { absent(); }
void cudaRelease(int, void *, void *) noexcept {}
void cudaCopy(const Context &, void *, const void *, size_t, CopyKind) { absent(); }
void cudaFillZero(const Context &, void *, size_t) { absent(); }
void cudaOrder(const Context &, const Context &) { absent(); }
void cudaFinish(const Context &) noexcept {}
void cudaGemm(const Context &, float, MatrixView<const float>, MatrixView<const float>, float,
              MatrixView<float>) {
  absent();
}
void cudaAccumulate(const Context &, MatrixView<const float>, MatrixView<const float>,
                    MatrixView<float>) {
  absent();
}
void cudaRowAbsMax(const Context &, MatrixView<const float>, float *) { absent(); }
void cudaCheckFinite(const Context &, MatrixView<const float>, MatrixView<const float>) {
  absent();
}
int64_t cudaCountOutside(const Context &, const float *, const float *, const float *, int64_t) {
  absent();
}
}  // namespace detail

}  // namespace RPU

#endif
