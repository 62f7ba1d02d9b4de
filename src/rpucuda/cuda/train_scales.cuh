#pragma once

#include <cub/cub.cuh>

#include "core/math.h"
#include "pulse_words_kernel.h"

namespace RPU {

struct LargerInt {
  __device__ int operator()(int a, int b) const { return RPU::max(a, b); }
};

/// The scales of all samples from their maxima, and the layout that the longest train needs; with
/// the fault word set, nothing is to be sent. For one block, once the maxima are there.
template <int kThreads>
__device__ inline void scaleAll(int64_t samples, const TrainJob &job) {
  using Reduce = cub::BlockReduce<int, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const bool isFaulty = job.maxima.fault && __ldcg(job.maxima.fault) != 0;
  int longest = 0;
  for (int64_t i = threadIdx.x; i < samples; i += kThreads) {
    if (isFaulty) {
      job.scaler.scales[i] = {0, 0.0f, 0.0f, 0.0f};
      job.scaler.lengths[i] = 0;
    } else {
      job.scaler(i);
      longest = RPU::max(longest, job.scaler.lengths[i]);
    }
  }
  longest = Reduce(storage).Reduce(longest, LargerInt{});
  if (threadIdx.x == 0) *job.layout = PulseLayout::of(longest);
  __syncthreads();
}

/// Whether this block is the last of `blocks` to get here; it then sees what the others wrote.
/// `finished` is 0 before and after.
__device__ inline bool finishesLast(uint32_t *finished, unsigned blocks) {
  __shared__ bool isLast;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    isLast = atomicAdd(finished, 1u) + 1 == blocks;
    if (isLast) *finished = 0;
  }
  __syncthreads();
  if (isLast) __threadfence();
  return isLast;
}

}  // namespace RPU
