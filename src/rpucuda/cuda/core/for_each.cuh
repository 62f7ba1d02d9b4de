#pragma once

#include "core/backend.h"
#include "cuda/core/launch.cuh"

namespace pulsora {
namespace gpu {

constexpr int kForEachThreads = 256;

template <class Functor>
struct ForEach {
  Functor functor;
  int64_t size;
};

template <class Functor, int kJobs>
__global__ void __launch_bounds__(kForEachThreads)
    forEachKernel(const __grid_constant__ Jobs<ForEach<Functor>, kJobs> jobs) {
  awaitEarlier();
  const ForEach<Functor> &job = jobs.ofBlock();
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kForEachThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kForEachThreads + threadIdx.x; i < job.size;
       i += stride)
    job.functor(i);
}

template <class Functor>
constexpr JobKernel<ForEach<Functor>> kForEachKernel = {
    &forEachKernel<Functor, 1>, &forEachKernel<Functor, kMostJobs<ForEach<Functor>>>};

template <class Term>
struct SumRows {
  Term term;
  int64_t rows;
  int64_t terms;
  double *out;
};

/// A warp per row, a lane per part.
template <class Term, int kJobs>
__global__ void __launch_bounds__(kForEachThreads)
    sumRowsKernel(const __grid_constant__ Jobs<SumRows<Term>, kJobs> jobs) {
  awaitEarlier();
  const auto &[term, rows, terms, out] = jobs.ofBlock();
  static_assert(kSumLanes == 32, "a lane of a warp takes one part of the sum");
  constexpr int kWarps = kForEachThreads / kSumLanes;
  const int lane = static_cast<int>(threadIdx.x) % kSumLanes;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kSumLanes;
  for (int64_t i = first; i < rows; i += static_cast<int64_t>(gridDim.x) * kWarps) {
    double part = 0.0;
    int64_t j = lane;
    // Terms are made ahead of their addition, which waits for the one before it.
    for (; j + 3 * kSumLanes < terms; j += 4 * kSumLanes) {
      double ahead[4];
      for (int k = 0; k < 4; ++k) ahead[k] = term(i, j + k * kSumLanes);
      for (int k = 0; k < 4; ++k) part += ahead[k];
    }
    for (; j < terms; j += kSumLanes) part += term(i, j);
    for (int half = kSumLanes / 2; half > 0; half /= 2)
      part += __shfl_down_sync(0xffffffffU, part, half);
    if (lane == 0) out[i] = part;
  }
}

template <class Term>
constexpr JobKernel<SumRows<Term>> kSumRowsKernel = {
    &sumRowsKernel<Term, 1>, &sumRowsKernel<Term, kMostJobs<SumRows<Term>>>};

}  // namespace gpu

template <class Term>
void cudaSumRows(const Context &context, int64_t rows, int64_t terms, const Term &term,
                 double *out) {
  if (rows == 0) return;
  const CudaScope scope(context.device);
  launchJob(context.stream, gpu::kSumRowsKernel<Term>,
            gridFor(rows * kSumLanes, gpu::kForEachThreads), gpu::kForEachThreads, 0,
            gpu::SumRows<Term>{term, rows, terms, out});
}

template <class Functor>
void cudaForEach(const Context &context, int64_t size, const Functor &functor) {
  if (size == 0) return;
  const CudaScope scope(context.device);
  launchJob(context.stream, gpu::kForEachKernel<Functor>, gridFor(size, gpu::kForEachThreads),
            gpu::kForEachThreads, 0, gpu::ForEach<Functor>{functor, size});
}

}  // namespace pulsora

/// Make forEach() and sumRows() of a functor available on a GPU: to be used once per functor, in a
/// .cu file, within namespace pulsora.
#define PULSORA_ON_GPU(Functor) \
  template void cudaForEach<Functor>(const Context &, int64_t, const Functor &)
#define PULSORA_SUM_ON_GPU(Term) \
  template void cudaSumRows<Term>(const Context &, int64_t, int64_t, const Term &, double *)
