#include "core/buffer.h"

#include <cstdlib>
#include <new>

#include "core/check.h"
#include "core/cuda_api.h"

namespace pulsora::detail {
namespace {
constexpr std::align_val_t kAlignment{64};
}

void *allocateBytes(const Context &context, int64_t count, size_t elementBytes) {
  PULSORA_CHECK(OutOfMemoryError, static_cast<uint64_t>(count) <= PTRDIFF_MAX / elementBytes,
                "cannot allocate ", count, " elements of ", elementBytes,
                " bytes; use a smaller array or batch");
  const size_t bytes = static_cast<size_t>(count) * elementBytes;
  if (context.allocator) return context.allocator->allocate(bytes);
  if (!context.onCpu()) return cudaAllocate(context, bytes);
  void *data = ::operator new(bytes, kAlignment, std::nothrow);
  PULSORA_CHECK(OutOfMemoryError, data, "cannot allocate ", bytes,
                " bytes of host memory; use a smaller array or batch");
  return data;
}

void freeBytes(Backend backend, int device, void *stream, void *data) noexcept {
  if (backend == Backend::Cpu) {
    ::operator delete(data, kAlignment);
  } else {
    cudaRelease(device, stream, data);
  }
}

void copyBytes(const Context &context, void *to, const void *from, size_t bytes) {
  if (bytes == 0) return;
  if (context.onCpu()) {
    std::memcpy(to, from, bytes);
  } else {
    cudaCopy(context, to, from, bytes, CopyKind::DeviceToDevice);
  }
}

void fillZero(const Context &context, void *data, size_t bytes) {
  if (bytes == 0) return;
  if (context.onCpu()) {
    std::memset(data, 0, bytes);
  } else {
    cudaFillZero(context, data, bytes);
  }
}

void copyFromHost(const Context &context, void *to, const void *hostFrom, size_t bytes) {
  if (bytes == 0) return;
  if (context.onCpu()) {
    std::memcpy(to, hostFrom, bytes);
  } else {
    cudaCopy(context, to, hostFrom, bytes, CopyKind::HostToDevice);
  }
}

void copyToHost(const Context &context, void *hostTo, const void *from, size_t bytes) {
  if (bytes == 0) return;
  if (context.onCpu()) {
    std::memcpy(hostTo, from, bytes);
  } else {
    cudaCopy(context, hostTo, from, bytes, CopyKind::DeviceToHost);
  }
}

}  // namespace pulsora::detail
