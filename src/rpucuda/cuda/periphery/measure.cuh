#pragma once

#include <cub/cub.cuh>

#include "periphery/read_kernels.h"

namespace pulsora {

struct LargerFloat {
  __device__ float operator()(float a, float b) const { return pulsora::max(a, b); }
};

// A short kernel spends much of its time fetching instructions, so rarely needed code is in
// separate functions.

/// The scale of a row's first read by any rule, some of which look through the row again. Sets the
/// state of the row if it `writes`.
template <class Stage>
__device__ __noinline__ float preparedByRule(const Stage &s, int64_t row,
                                             const VectorView<const float> &values, float largest,
                                             bool writes) {
  return writes ? prepareRow(s, row, values, largest) : noiseScale(s.rule, values, largest);
}

/// preparedByRule() with a short path for the usual rule; by one thread. If the largest |value| is
/// infinite, the results of the row become NaN.
__device__ inline float prepared(const InputStage &s, int64_t row,
                                 const VectorView<const float> &values, float largest,
                                 bool writes) {
  if (largest == kInfinity) return writes ? spoilRow(s.state, row) : kNaN;
  if (s.rule.management != NoiseManagement::AbsMax || s.state.worstScale)
    return preparedByRule(s, row, values, largest, writes);
  ScaleRule rule = s.rule;
  rule.management = NoiseManagement::AbsMax;  // now known to the compiler
  const float scale = noiseScale(rule, values, largest);
  if (writes) beginRow(s.state, row, scale);
  return scale;
}

/// Result of measuring a row of inputs: its largest |value|, infinity if one is not finite, and the
/// scale of its first read.
struct MeasuredRow {
  float largest;
  float scale;
};

/// A warp measures a row; all its lanes get the result, and the state of the row is written if the
/// warp `writes`.
__device__ inline MeasuredRow measureByWarp(const InputStage &s, int64_t row, bool writes) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const VectorView<const float> values = s.in.row(row);
  float largest = 0.0f;
  bool bad = false;
#pragma unroll 8
  for (int64_t j = lane; j < values.size; j += 32) {
    const float value = values[j];
    largest = reduce::AbsLargest::add(largest, value);
    bad |= !isFinite(value);
  }
  if (bad) largest = kInfinity;
  for (int half = 16; half > 0; half /= 2)
    largest = pulsora::max(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, half));
  if (bad && s.nonfiniteFlag) *s.nonfiniteFlag = 1;
  float scale = 0.0f;
  if (lane == 0) scale = prepared(s, row, values, largest, writes);
  return {largest, __shfl_sync(0xFFFFFFFFU, scale, 0)};
}

/// A row of which the threads of a block have found their largest |value|, or infinity; thread 0
/// writes the state of the row, and alone gets the result.
template <int kThreads>
__device__ inline MeasuredRow joinMeasures(const InputStage &s, int64_t row, float largest) {
  using Reduce = cub::BlockReduce<float, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  if (largest == kInfinity && s.nonfiniteFlag) *s.nonfiniteFlag = 1;
  largest = Reduce(storage).Reduce(largest, LargerFloat{});
  float scale = 0.0f;
  if (threadIdx.x == 0) scale = prepared(s, row, s.in.row(row), largest, true);
  __syncthreads();
  return {largest, scale};
}

/// A block of kThreads measures a row, as joinMeasures() tells.
template <int kThreads>
__device__ inline MeasuredRow measureTogether(const InputStage &s, int64_t row) {
  const VectorView<const float> values = s.in.row(row);
  float largest = 0.0f;
  bool bad = false;
  for (int64_t j = threadIdx.x; j < values.size; j += kThreads) {
    largest = reduce::AbsLargest::add(largest, values[j]);
    bad |= !isFinite(values[j]);
  }
  return joinMeasures<kThreads>(s, row, bad ? kInfinity : largest);
}

}  // namespace pulsora
