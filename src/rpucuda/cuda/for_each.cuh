#pragma once

#include "core/backend.h"
#include "cuda/check.cuh"

namespace RPU {
namespace gpu {

constexpr int kForEachThreads = 256;

template <class Functor>
__global__ void __launch_bounds__(kForEachThreads) forEachKernel(int64_t size, Functor functor) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kForEachThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kForEachThreads + threadIdx.x; i < size; i += stride) functor(i);
}

}  // namespace gpu

template <class Functor>
void cudaForEach(const Context &context, int64_t size, const Functor &functor) {
  if (size == 0) return;
  const CudaScope scope(context.device);
  gpu::forEachKernel<<<gridFor(size, gpu::kForEachThreads), gpu::kForEachThreads, 0, streamOf(context)>>>(size, functor);
  RPU_CUDA(cudaGetLastError());
}

}  // namespace RPU
