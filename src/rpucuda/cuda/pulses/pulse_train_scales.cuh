#pragma once

#include <cub/cub.cuh>

#include "numerics/math.h"
#include "pulses/draw_pulse_trains.h"

namespace pulsora {

/// The longest of some pulse trains, and the sum of their lengths.
struct TrainLengths {
  int longest = 0;
  uint64_t slots = 0;

  __device__ void add(int length) {
    longest = pulsora::max(longest, length);
    slots += static_cast<uint64_t>(length);
  }
};
struct JoinLengths {
  __device__ TrainLengths operator()(const TrainLengths &a, const TrainLengths &b) const {
    return {pulsora::max(a.longest, b.longest), a.slots + b.slots};
  }
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

/// The layout that the longest pulse train of all threads needs, and their slots.
template <int kThreads>
__device__ inline void chooseLayout(TrainLengths lengths, const PulseTrainJob &job) {
  using Reduce = cub::BlockReduce<TrainLengths, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  lengths = Reduce(storage).Reduce(lengths, JoinLengths{});
  if (threadIdx.x == 0) {
    *job.layout = PulseLayout::of(lengths.longest);
    if (job.slots) *job.slots += lengths.slots;
  }
  __syncthreads();
}

/// The layout for samples that have been scaled one by one; if an input of any sample was not
/// finite, no sample sends a pulse. Run by one block.
template <int kThreads>
__device__ inline void layOutScaled(int64_t samples, const PulseTrainJob &job) {
  const bool faulty = isFaulty(job.maxima);
  TrainLengths lengths;
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < samples; i += kThreads)
    lengths.add(faulty ? scaleSample(job, i, true) : __ldcg(&job.scaler.lengths[i]));
  chooseLayout<kThreads>(lengths, job);
}

/// Scales all samples, whose maxima must be known, and chooses the layout; run by one block.
template <int kThreads>
__device__ inline void scaleAll(int64_t samples, const PulseTrainJob &job) {
  const bool faulty = isFaulty(job.maxima);
  TrainLengths lengths;
  for (int64_t i = threadIdx.x; i < samples; i += kThreads)
    lengths.add(scaleSample(job, i, faulty));
  chooseLayout<kThreads>(lengths, job);
}

/// scaleAll() for two arrays of one tile in one pass.
template <int kThreads>
__device__ inline void scaleBoth(int64_t samples, const PulseTrainJob &a, const PulseTrainJob &b) {
  const bool faulty = isFaulty(a.maxima);
  TrainLengths ofA;
  TrainLengths ofB;
  for (int64_t i = threadIdx.x; i < 2 * samples; i += kThreads) {
    const bool isA = i < samples;
    const int length = scaleSample(isA ? a : b, isA ? i : i - samples, faulty);
    ofA.add(isA ? length : 0);
    ofB.add(isA ? 0 : length);
  }
  chooseLayout<kThreads>(ofA, a);
  chooseLayout<kThreads>(ofB, b);
}

}  // namespace pulsora
