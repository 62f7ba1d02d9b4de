#pragma once

#include "cuda/periphery/row_read.cuh"

// Reads of many short rows, as a convolution has them, whose samples are the pixels of its images. A
// thread takes a whole row: a block, or a warp, would find little to share in it.

namespace RPU {

constexpr int kShortRowThreads = 128;

/// Grid of a kernel with a thread per row.
inline unsigned gridForRows(int64_t rows) {
  return static_cast<unsigned>((rows + kShortRowThreads - 1) / kShortRowThreads);
}
/// The row of this thread.
__device__ inline int64_t rowOfThread() {
  return static_cast<int64_t>(blockIdx.x) * kShortRowThreads + threadIdx.x;
}

/// One read of a row; store(line, result). Returns whether a line left the range of the ADC.
template <class Store>
__device__ inline bool readShortRowOnce(const PlainRead &r, int64_t row, float scale, int32_t round,
                                        const Store &store) {
  constexpr int kAtOnce = 8;
  const MatrixView<const float> w = r.weights;
  bool clipped = false;
#pragma unroll 1
  for (int64_t first = 0; first < w.rows; first += kAtOnce) {
    float sums[kAtOnce] = {};
    const float *line[kAtOnce];
#pragma unroll
    for (int q = 0; q < kAtOnce; ++q)
      line[q] = w.data + RPU::min(first + q, w.rows - 1) * w.rowStride;
    convertInputs(r.input, row, 0, w.cols, 1, scale, round, [&](int64_t j, float u) {
#pragma unroll
      for (int q = 0; q < kAtOnce; ++q) sums[q] = RPU::fma(line[q][j * w.colStride], u, sums[q]);
    });
    const int count = static_cast<int>(RPU::min(w.rows - first, int64_t{kAtOnce}));
#pragma unroll 1
    for (int q = 0; q < count; ++q) {
      const Reading read = readingOf(r.output, row, first + q, sums[q], round);
      clipped |= read.clipped != 0;
      store(first + q, read.value * (scale * r.output.outScale));
    }
  }
  return clipped;
}

/// Reads a row from its measurement to the last repetition, before each of which `again()` is
/// called. Returns the largest |input|.
template <class Store, class Again>
__device__ inline float readShortRow(const PlainRead &r, int64_t row, const Store &store,
                                     const Again &again) {
  const VectorView<const float> values = r.input.in.row(row);
  float largest = 0.0f;
  bool bad = false;
#pragma unroll 4
  for (int64_t j = 0; j < values.size; ++j) {
    const float value = values[j];
    largest = reduce::AbsLargest::add(largest, value);
    bad |= !isFinite(value);
  }
  if (bad && r.input.fault) *r.input.fault = 1;
  prepareRow(r.input, row, values, largest);
  float scale = r.input.state.scale[row];
  for (int32_t round = 0; readShortRowOnce(r, row, scale, round, store) && round < r.repeats;
       ++round) {
    scale = nextScale(r.input.state, row, scale);
    again();
  }
  return largest;
}

/// The same, to where the read's results go.
__device__ inline float readShortRow(const PlainRead &r, int64_t row) {
  return readShortRow(
      r, row, [&](int64_t line, float value) { r.output.out(row, line) = value; }, [] {});
}

}  // namespace RPU
