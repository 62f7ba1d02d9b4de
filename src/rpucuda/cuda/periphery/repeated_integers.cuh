#pragma once

#include "cuda/periphery/integer_shapes.cuh"
#include "cuda/periphery/repeated_product.cuh"

// The products of repeated reads in integers, which all blocks of a grid make together: each takes
// blocks of the products in turn.

namespace pulsora {

/// The product that a block works on: one copy, which takes no registers of the threads.
__device__ inline IntegerProblem &sharedProblem() {
  alignas(IntegerProblem) __shared__ unsigned char memory[sizeof(IntegerProblem)];
  return *reinterpret_cast<IntegerProblem *>(memory);
}

/// A function of its own, which has all registers for itself.
template <class S>
__device__ __noinline__ void multiplySharedBlock(int block, int part) {
  multiplyBlock<S>(sharedProblem(), block, part, [] {});
}

/// Products of repeated reads by blocks of this size.
template <class Size>
struct IntegerRepeats {
  static constexpr int kThreads = Size::kThreads;
  static constexpr int kBlocks = Size::kBlocks;
  static constexpr size_t kSharedBytes = Size::kSharedBytes;

  /// The parts of a read's sums that keep all blocks of the grid busy, if there is memory for them.
  __device__ static int32_t partsOf(const ListedRows &rows, int which) {
    int64_t blocks = 0;
    for (int k = 0; k < rows.count; ++k)
      blocks += blocksOf(rows.listed[k], rows.reads[k].read.weights.rows);
    const PlainRead &r = rows.reads[which].read;
    const int64_t depth = r.weights.cols;
    int64_t parts = pulsora::min(gridDim.x / pulsora::max(blocks, int64_t{1}), depth / kLeastDepth);
    parts = pulsora::min(parts, roomFor(r, pulsora::max(rows.listed[which], 1)));
    parts = pulsora::max(parts, pulsora::max(necessaryParts(depth), int64_t{1}));
    return static_cast<int32_t>(parts);
  }

  /// The sums of `listed` rows in `parts` parts.
  __device__ static IntegerSums sumsOf(const PlainRead &r, int64_t listed, int64_t parts) {
    int64_t *spare = reinterpret_cast<int64_t *>(r.sums + usedSums(r, listed));
    return {r.sums, r.parts > 1 ? r.partial : spare, parts, r.unit, true};
  }

  /// The sums of all reads.
  __device__ static void multiply(const ListedRows &rows) {
    int64_t block = blockIdx.x;  // counted from the first of a read
    for (int k = 0; k < rows.count; ++k) {
      const PlainRead &r = rows.reads[k].read;
      const int64_t blocks = blocksOf(rows.listed[k], r.weights.rows);
      const int64_t all = blocks * rows.parts[k];
      if (block < all) {
        if (threadIdx.x == 0) sharedProblem() = problemOf(r, rows.listed[k], rows.parts[k]);
        __syncthreads();
        for (; block < all; block += gridDim.x) {
          multiplyBlockOf(r, static_cast<int>(block % blocks), static_cast<int>(block / blocks));
          __syncthreads();  // the next block uses the same memory
        }
      }
      block -= all;
    }
  }

 private:
  __device__ static void multiplyBlockOf(const PlainRead &r, int block, int part) {
    const bool few = r.integers.bits == 16;  // digits
    if (r.weights.colStride == 1) {
      few ? multiplySharedBlock<Shape<Size, 2, true>>(block, part)
          : multiplySharedBlock<Shape<Size, 3, true>>(block, part);
    } else {
      few ? multiplySharedBlock<Shape<Size, 2, false>>(block, part)
          : multiplySharedBlock<Shape<Size, 3, false>>(block, part);
    }
  }
  __device__ static int64_t blocksOf(int64_t rows, int64_t lines) {
    return blocksAlong(rows, Size::kRows) * blocksAlong(lines, Size::kLines);
  }
  /// Elements of the memory of the sums in use, such that those after it can hold integers.
  __device__ static int64_t usedSums(const PlainRead &r, int64_t listed) {
    return blocksAlong(listed * r.weights.rows, 2) * 2;
  }
  /// How many parts of the sums of `listed` rows there is memory for: that of the first read, or
  /// the sums of the rows that are not listed.
  __device__ static int64_t roomFor(const PlainRead &r, int64_t listed) {
    const int64_t rows = r.input.in.rows;
    if (r.parts > 1) return r.parts * rows / listed;
    const int64_t sums = listed * r.weights.rows;
    return (rows * r.weights.rows - usedSums(r, listed)) / pulsora::max(2 * sums, int64_t{1});
  }
  __device__ static IntegerProblem problemOf(const PlainRead &r, int64_t listed, int64_t parts) {
    const IntegerSums to = sumsOf(r, listed, parts);
    return {r.input.bytes,
            r.weights,
            r.integers,
            to.unit,
            to.sums,
            parts > 1 ? to.partial : nullptr,
            static_cast<int>(listed),
            static_cast<int>(depthOfPart(r.weights.cols, parts)),
            static_cast<int>(blocksAlong(listed, Size::kRows)),
            areInQuads(r.weights)};
  }
};

}  // namespace pulsora
