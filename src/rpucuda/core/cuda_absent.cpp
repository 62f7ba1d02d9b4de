// The GPU functions of core/ for a build without CUDA; CMake compiles this file only then.

#include "core/check.h"
#include "core/cuda_api.h"
#include "core/has_cuda.h"
#include "core/storage_source.h"

namespace pulsora {

void throwWithoutCuda() {
  throw DeviceError(
      "device='cuda' was asked for, but this build of Pulsora has no CUDA backend; use "
      "device='cpu', or rebuild where nvcc is installed");
}

int cudaDeviceCount() { return 0; }
void requireCudaDevice(int) { throwWithoutCuda(); }
CudaScope::CudaScope(int) { throwWithoutCuda(); }
CudaScope::~CudaScope() { previous_ = -1; }
bool isCaptured(void *) { return false; }
void limitSharedBytes(size_t) {}
void setStorageSource(StorageSource *) {}

namespace detail {
void *cudaAllocate(const Context &, size_t) { throwWithoutCuda(); }
void cudaRelease(int, void *, void *) noexcept {}
void cudaCopy(const Context &, void *, const void *, size_t, CopyKind) { throwWithoutCuda(); }
void cudaFillZero(const Context &, void *, size_t) { throwWithoutCuda(); }
void cudaOrder(const Context &, const Context &) { throwWithoutCuda(); }
void cudaFinish(const Context &) noexcept {}
}  // namespace detail

}  // namespace pulsora
