#pragma once

#include <cub/cub.cuh>

#include "periphery/read_kernels.h"

namespace RPU {

struct LargerFloat {
  __device__ float operator()(float a, float b) const { return RPU::max(a, b); }
};

/// A block of kThreads measures a row; thread 0 writes the state of the row, and alone gets the
/// maximum.
template <int kThreads>
__device__ inline float measureTogether(const InputStage &s, int64_t row) {
  using Reduce = cub::BlockReduce<float, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const VectorView<const float> values = s.in.row(row);
  float largest = 0.0f;
  bool bad = false;
  for (int64_t j = threadIdx.x; j < values.size; j += kThreads) {
    largest = reduce::AbsLargest::add(largest, values[j]);
    bad |= !isFinite(values[j]);
  }
  if (bad && s.fault) *s.fault = 1;
  largest = Reduce(storage).Reduce(largest, LargerFloat{});
  if (threadIdx.x == 0) prepareRow(s, row, values, largest);
  __syncthreads();
  return largest;
}

}  // namespace RPU
