#pragma once

#include <cstddef>

#include "core/context.h"

// Devices, memory and streams of CUDA, for host code that may be built without CUDA. With CUDA
// these functions are defined in cuda/core; without it, in core/cuda_absent.cpp, where each throws
// DeviceError.

namespace pulsora {

enum class CopyKind { HostToDevice, DeviceToHost, DeviceToDevice };

/// Number of usable CUDA devices; 0 if this build has no CUDA or the machine no GPU.
int cudaDeviceCount();

/// Fails with DeviceError, saying why, unless `device` can be used.
void requireCudaDevice(int device);

/// Makes a GPU the calling thread's current one during its lifetime, then restores the previous
/// one.
class CudaScope {
 public:
  explicit CudaScope(int device);
  ~CudaScope();
  CudaScope(const CudaScope &) = delete;
  CudaScope &operator=(const CudaScope &) = delete;

 private:
  int previous_ = -1;
};

/// Whether work enqueued in this cudaStream_t is being captured into a graph.
bool isCaptured(void *stream);

/// Makes kernels that have blocks of several sizes keep to `bytes` of shared memory, as on a GPU
/// that has no more; 0 ends that. For tests.
void limitSharedBytes(size_t bytes);

namespace detail {
/// Allocates storage for the use of work enqueued on the context's stream from now on.
void *cudaAllocate(const Context &context, size_t bytes);
/// Frees storage once all work now on `stream` has run.
void cudaRelease(int device, void *stream, void *data) noexcept;
void cudaCopy(const Context &context, void *to, const void *from, size_t bytes, CopyKind kind);
void cudaFillZero(const Context &context, void *data, size_t bytes);
/// Makes later work on `then`'s stream wait for the work now on `first`'s. The host does not wait.
void cudaOrder(const Context &first, const Context &then);
/// Waits for the context's stream.
void cudaFinish(const Context &context) noexcept;
}  // namespace detail

}  // namespace pulsora
