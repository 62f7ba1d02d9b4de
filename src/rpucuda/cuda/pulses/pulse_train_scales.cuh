#pragma once

#include <cub/cub.cuh>

#include "numerics/math.h"
#include "pulses/draw_pulse_trains.h"

namespace pulsora {

struct LargerInt {
  __device__ int operator()(int a, int b) const { return pulsora::max(a, b); }
};

/// Computes the scale of a sample from its maxima; returns the length of its pulse train, which is
/// 0 if `isFaulty`, that is, an input was not finite.
__device__ inline int scaleSample(const PulseTrainJob &job, int64_t i, bool isFaulty) {
  if (isFaulty) {
    job.scaler.scales[i] = {0, 0.0f, 0.0f, 0.0f};
    job.scaler.lengths[i] = 0;
  } else {
    job.scaler(i);
  }
  return job.scaler.lengths[i];
}

__device__ inline bool isFaulty(const PulseTrainMaxima &maxima) {
  return maxima.nonfiniteFlag && __ldcg(maxima.nonfiniteFlag) != 0;
}

/// The layout that the longest pulse train of all threads needs.
template <int kThreads>
__device__ inline void chooseLayout(int longest, PulseLayout *layout) {
  using Reduce = cub::BlockReduce<int, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  longest = Reduce(storage).Reduce(longest, LargerInt{});
  if (threadIdx.x == 0) *layout = PulseLayout::of(longest);
  __syncthreads();
}

/// The layout for samples that have been scaled one by one; if an input of any sample was not
/// finite, no sample sends a pulse. Run by one block.
template <int kThreads>
__device__ inline void layOutScaled(int64_t samples, const PulseTrainJob &job) {
  const bool faulty = isFaulty(job.maxima);
  int longest = 0;
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < samples; i += kThreads) {
    const int length = faulty ? scaleSample(job, i, true) : __ldcg(&job.scaler.lengths[i]);
    longest = pulsora::max(longest, length);
  }
  chooseLayout<kThreads>(longest, job.layout);
}

/// Scales all samples, whose maxima must be known, and chooses the layout; run by one block.
template <int kThreads>
__device__ inline void scaleAll(int64_t samples, const PulseTrainJob &job) {
  const bool faulty = isFaulty(job.maxima);
  int longest = 0;
  for (int64_t i = threadIdx.x; i < samples; i += kThreads)
    longest = pulsora::max(longest, scaleSample(job, i, faulty));
  chooseLayout<kThreads>(longest, job.layout);
}

/// scaleAll() for two arrays of one tile in one pass.
template <int kThreads>
__device__ inline void scaleBoth(int64_t samples, const PulseTrainJob &a, const PulseTrainJob &b) {
  const bool faulty = isFaulty(a.maxima);
  int longestA = 0;
  int longestB = 0;
  for (int64_t i = threadIdx.x; i < 2 * samples; i += kThreads) {
    const bool isA = i < samples;
    const int length = scaleSample(isA ? a : b, isA ? i : i - samples, faulty);
    longestA = isA ? pulsora::max(longestA, length) : longestA;
    longestB = isA ? longestB : pulsora::max(longestB, length);
  }
  chooseLayout<kThreads>(longestA, a.layout);
  chooseLayout<kThreads>(longestB, b.layout);
}

}  // namespace pulsora
