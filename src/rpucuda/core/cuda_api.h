#pragma once

#include <cstddef>

#include "core/context.h"
#include "core/view.h"

// The CUDA side of storage, seen from host code that may be built without CUDA. With CUDA these are defined in
// cuda/memory.cu; without it, in core/cuda_absent.cpp, where each throws DeviceError.

namespace RPU {

enum class CopyKind { HostToDevice, DeviceToHost, DeviceToDevice };

/// Number of usable CUDA devices; 0 if this build has no CUDA or the machine no GPU.
int cudaDeviceCount();

/// Fails with DeviceError, saying why, unless `device` can be used.
void requireCudaDevice(int device);

namespace detail {
void *cudaAllocate(const Context &context, size_t bytes);
void cudaRelease(int device, void *data) noexcept;
void cudaCopy(const Context &context, void *to, const void *from, size_t bytes, CopyKind kind);
void cudaFillZero(const Context &context, void *data, size_t bytes);
void cudaGemm(const Context &context, float alpha, MatrixView<const float> a, MatrixView<const float> b, float beta,
              MatrixView<float> c);
void cudaAccumulate(const Context &context, MatrixView<const float> a, MatrixView<const float> b, MatrixView<float> c);
void cudaRowAbsMax(const Context &context, MatrixView<const float> a, float *out);
}  // namespace detail

}  // namespace RPU
