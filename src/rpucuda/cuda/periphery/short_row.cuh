#pragma once

#include "cuda/periphery/row_read.cuh"

// Reads of many short rows, as in a convolution, whose samples are the pixels of its images. A quad
// of threads takes a row: a block, or a warp, would have little to share in it.

namespace pulsora {

constexpr int kQuad = 4;
constexpr int kShortRowThreads = 128;
constexpr int kShortRowBlocks = 5;  // on a processor at once: rows wait for memory most of the time
constexpr int kShortRowsPerBlock = kShortRowThreads / kQuad;

/// Grid of a kernel with a quad per row.
inline unsigned gridForRows(int64_t rows) {
  return static_cast<unsigned>((rows + kShortRowsPerBlock - 1) / kShortRowsPerBlock);
}

/// The threads of a row; all of them call functions that take a Quad.
struct Quad {
  int64_t row;
  int place;      // of this thread among them
  unsigned mask;  // of their lanes

  /// The quad of this thread in group `group` of the rows.
  __device__ static Quad ofThread(int64_t group) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return {group * kShortRowsPerBlock + threadIdx.x / kQuad, lane % kQuad,
            0xFu << lane / kQuad * kQuad};
  }
  /// Makes the writes of each thread visible to the others.
  __device__ void sync() const { __syncwarp(mask); }
  __device__ float largest(float value) const {
    for (int half = kQuad / 2; half > 0; half /= 2)
      value = pulsora::max(value, __shfl_xor_sync(mask, value, half));
    return value;
  }
  __device__ bool any(bool value) const { return __any_sync(mask, value) != 0; }
};

/// One read of a row, a few lines at a time by each thread; store(line, result). Returns whether a
/// line left the range of the ADC.
template <class Product, class Store>
__device__ inline bool readShortRowOnce(const PlainRead &r, const Quad &quad, float scale,
                                        int32_t round, const Store &store) {
  const Product product(r);
  constexpr int kAtOnce = 4;
  const MatrixView<const float> w = r.weights;
  // Few lines are divided among all threads of the quad.
  const int atOnce = w.rows <= kQuad ? 1 : w.rows <= 2 * kQuad ? 2 : kAtOnce;
  bool clipped = false;
#pragma unroll 1
  for (int64_t first = quad.place * atOnce; first < w.rows; first += kQuad * atOnce) {
    typename Product::Sum sums[kAtOnce] = {};
    const float *line[kAtOnce];
#pragma unroll
    for (int q = 0; q < kAtOnce; ++q)
      line[q] = w.data + pulsora::min(first + q, w.rows - 1) * w.rowStride;
    convertInputs(r.input, quad.row, 0, w.cols, 1, scale, round, [&](int64_t j, float input) {
      const auto u = product.input(input);
#pragma unroll
      for (int q = 0; q < kAtOnce; ++q)
        if (q < atOnce) Product::add(sums[q], u, product.weight(line[q][j * w.colStride]));
    });
#pragma unroll
    for (int q = 0; q < kAtOnce; ++q) {
      if (q >= atOnce || first + q >= w.rows) continue;
      const Reading read = readingOf(r.output, quad.row, first + q, product.result(sums[q]), round);
      clipped |= read.clipped != 0;
      store(first + q, read.value * (scale * r.output.outScale));
    }
  }
  return quad.any(clipped);
}

/// A quad measures a row; all its threads get the result, and the state of the row is written if
/// the quad `writes`.
__device__ inline MeasuredRow measureShortRow(const InputStage &s, const Quad &quad, bool writes) {
  const VectorView<const float> values = s.in.row(quad.row);
  float largest = 0.0f;
  bool bad = false;
  constexpr int kAhead = 4;  // values that are requested together
  const float *own = values.data + quad.place * values.stride;
#pragma unroll 1
  for (int64_t left = values.size - quad.place; left > 0; left -= kAhead * kQuad) {
    float ahead[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k, own += kQuad * values.stride)
      ahead[k] = k * kQuad < left ? *own : 0.0f;
#pragma unroll
    for (const float value : ahead) {
      largest = reduce::AbsLargest::add(largest, value);
      bad |= !isFinite(value);
    }
  }
  if (bad) largest = kInfinity;
  if (bad && s.nonfiniteFlag) *s.nonfiniteFlag = 1;
  largest = quad.largest(largest);
  float scale = 0.0f;
  if (quad.place == 0) scale = prepared(s, quad.row, values, largest, writes);
  quad.sync();
  return {largest, __shfl_sync(quad.mask, scale, 0, kQuad)};
}

/// Reads a row from its measurement to the last repetition, before each of which `again()` is
/// called. Returns the largest |input|.
template <class Product, class Store, class Again>
__device__ inline float readShortRow(const PlainRead &r, const Quad &quad, const Store &store,
                                     const Again &again) {
  const MeasuredRow measured = measureShortRow(r.input, quad, true);
  float scale = measured.scale;
  for (int32_t round = 0;
       readShortRowOnce<Product>(r, quad, scale, round, store) && round < r.repeats; ++round) {
    scale = nextScale(r.input.state, quad.row, scale);
    if (quad.place == 0) countRepeat(r.input.state);
    again();
  }
  quad.sync();
  return measured.largest;
}

/// readShortRow() that stores results in the read's output.
template <class Product>
__device__ inline float readShortRow(const PlainRead &r, const Quad &quad) {
  return readShortRow<Product>(
      r, quad, [&](int64_t line, float value) { r.output.out(quad.row, line) = value; }, [] {});
}

/// Reads a row again until it stays within the range of the ADC.
template <class Product>
__device__ __noinline__ void repeatShortRow(const PlainRead &r, const Quad &quad, float scale) {
  bool clipped = true;
  for (int32_t round = 1; clipped && round <= r.repeats; ++round) {
    scale = nextScale(r.input.state, quad.row, scale);
    if (quad.place == 0) countRepeat(r.input.state);
    clipped = readShortRowOnce<Product>(r, quad, scale, round, [&](int64_t line, float value) {
      r.output.out(quad.row, line) = value;
    });
  }
}

}  // namespace pulsora
