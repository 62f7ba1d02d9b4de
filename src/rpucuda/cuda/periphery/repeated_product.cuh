#pragma once

#include <algorithm>

#include "cuda/core/launch.cuh"
#include "cuda/periphery/row_read.cuh"

// The products of repeated reads in floating point, which all blocks of a grid make together:
// pieces of rows by outputs, whose factors go through shared memory in slices.

namespace pulsora {

/// The rows that are read again, of all reads.
struct ListedRows {
  const SumOfReads *reads;
  int count;              // of the reads
  const int32_t *listed;  // rows of each read
  const int32_t *parts;   // into which the sums of each read are divided
};

constexpr int kRepeatThreads = 256;
constexpr int kRepeatSide = 16;  // threads along the rows and along the outputs of a piece
static_assert(kRepeatSide * kRepeatSide == kRepeatThreads, "a thread per part of a piece");

// Rows and outputs of a piece. Blocks with small pieces have little to multiply between two waits
// for memory, so that their slices are deeper.
constexpr int kLargePiece = 64;
constexpr int kSmallPiece = 32;
template <int kSize>
constexpr int kRepeatDepth = kSize == kSmallPiece ? 64 : 16;  // products per slice

template <int kSize>
using Slice = float[kRepeatDepth<kSize>][kSize + 4];  // lines of whole quads, in different banks

/// Shared memory for a slice of inputs and one of weights.
struct alignas(16) RepeatMemory {
  unsigned char bytes[2 * std::max(sizeof(Slice<kLargePiece>), sizeof(Slice<kSmallPiece>))];
};

/// A thread's share of a slice of kSize rows of a matrix from row0 on; 0 outside. It is asked for
/// while the slice before it is multiplied.
template <int kSize>
struct SliceLoader {
  static constexpr int kDepth = kRepeatDepth<kSize>;
  static constexpr int kElements = kSize * kDepth;

  MatrixView<const float> m;
  int64_t row0;
  float held[kElements / kRepeatThreads];

  /// Row and depth of an element: neighbouring threads read neighbours in memory.
  __device__ int rowOf(int i) const { return m.colStride == 1 ? i / kDepth : i % kSize; }
  __device__ int depthOf(int i) const { return m.colStride == 1 ? i % kDepth : i / kSize; }

  __device__ void ask(int64_t k0) {
#pragma unroll
    for (int e = 0; e < kElements / kRepeatThreads; ++e) {
      const int i = static_cast<int>(threadIdx.x) + e * kRepeatThreads;
      const int64_t row = row0 + rowOf(i);
      const int64_t k = k0 + depthOf(i);
      held[e] = row < m.rows && k < m.cols ? m(row, k) : 0.0f;
    }
  }
  __device__ void store(Slice<kSize> &slice) const {
#pragma unroll
    for (int e = 0; e < kElements / kRepeatThreads; ++e) {
      const int i = static_cast<int>(threadIdx.x) + e * kRepeatThreads;
      slice[depthOf(i)][rowOf(i)] = held[e];
    }
  }
};

/// A thread's sums of a piece: neighbouring rows and outputs.
template <int kSize>
struct ThreadSums {
  static constexpr int kPart = kSize / kRepeatSide;  // rows and outputs of a thread

  float acc[kPart][kPart] = {};

  __device__ static int row() { return static_cast<int>(threadIdx.x) / kRepeatSide * kPart; }
  __device__ static int line() { return static_cast<int>(threadIdx.x) % kRepeatSide * kPart; }

  __device__ void add(const Slice<kSize> &inputs, const Slice<kSize> &weights) {
#pragma unroll
    for (int k = 0; k < kRepeatDepth<kSize>; ++k) {
      float u[kPart];
      float w[kPart];
#pragma unroll
      for (int i = 0; i < kPart; ++i) u[i] = inputs[k][row() + i];
#pragma unroll
      for (int j = 0; j < kPart; ++j) w[j] = weights[k][line() + j];
#pragma unroll
      for (int i = 0; i < kPart; ++i) {
#pragma unroll
        for (int j = 0; j < kPart; ++j) FloatProduct::add(acc[i][j], u[i], w[j]);
      }
    }
  }
  /// use(row, output, sum) for the places of the piece that this thread has.
  template <class Use>
  __device__ void forEach(const Use &use) const {
#pragma unroll
    for (int i = 0; i < kPart; ++i) {
#pragma unroll
      for (int j = 0; j < kPart; ++j) use(row() + i, line() + j, acc[i][j]);
    }
  }
};

/// Pieces of a product: kSize rows of the inputs by kSize outputs.
template <int kSize>
__device__ inline int64_t piecesOf(int64_t rows, int64_t lines) {
  return (rows + kSize - 1) / kSize * ((lines + kSize - 1) / kSize);
}

/// sums = inputs weights^T; the blocks take its pieces in turn, from block `firstBlock` on.
template <int kSize>
__device__ inline void multiplyTogether(MatrixView<const float> inputs,
                                        MatrixView<const float> weights, float *sums,
                                        int64_t firstBlock, RepeatMemory &memory) {
  using Factors = Slice<kSize>;
  Factors &inputSlice = *reinterpret_cast<Factors *>(memory.bytes);
  Factors &weightSlice = *reinterpret_cast<Factors *>(memory.bytes + sizeof(Factors));
  constexpr int kDepth = kRepeatDepth<kSize>;
  const int64_t across = (weights.rows + kSize - 1) / kSize;
  const int64_t pieces = piecesOf<kSize>(inputs.rows, weights.rows);
  const int64_t blocks = gridDim.x;
  const int64_t first = (blockIdx.x + blocks - firstBlock % blocks) % blocks;
  for (int64_t piece = first; piece < pieces; piece += blocks) {
    SliceLoader<kSize> nextInputs{inputs, piece / across * kSize, {}};
    SliceLoader<kSize> nextWeights{weights, piece % across * kSize, {}};
    ThreadSums<kSize> ofPiece;
    nextInputs.ask(0);
    nextWeights.ask(0);
    for (int64_t k0 = 0; k0 < inputs.cols; k0 += kDepth) {
      __syncthreads();  // the previous slice is still read
      nextInputs.store(inputSlice);
      nextWeights.store(weightSlice);
      __syncthreads();
      nextInputs.ask(k0 + kDepth);
      nextWeights.ask(k0 + kDepth);
      ofPiece.add(inputSlice, weightSlice);
    }
    ofPiece.forEach([&](int i, int j, float sum) {
      const int64_t row = nextInputs.row0 + i;
      const int64_t line = nextWeights.row0 + j;
      if (row < inputs.rows && line < weights.rows) sums[row * weights.rows + line] = sum;
    });
  }
}

/// Products of repeated reads in floating point.
struct FloatRepeats {
  static constexpr int kThreads = kRepeatThreads;
  static constexpr int kBlocks = 2;  // on a processor at once
  static constexpr size_t kSharedBytes = 0;

  __device__ static int32_t partsOf(const ListedRows &, int) { return 1; }
  __device__ static IntegerSums sumsOf(const PlainRead &r, int64_t, int64_t) {
    return {r.sums, nullptr, 1, 1.0f, true};
  }

  /// The sums of all reads, in larger pieces where these keep all blocks busy.
  __device__ static void multiply(const ListedRows &rows) {
    int64_t large = 0;
    for (int k = 0; k < rows.count; ++k)
      large += piecesOf<kLargePiece>(rows.listed[k], rows.reads[k].read.weights.rows);
    __shared__ RepeatMemory memory;
    large < gridDim.x ? multiplyPieces<kSmallPiece>(rows, memory)
                      : multiplyPieces<kLargePiece>(rows, memory);
  }

 private:
  template <int kSize>
  __device__ static void multiplyPieces(const ListedRows &rows, RepeatMemory &memory) {
    int64_t before = 0;  // pieces of the reads before
    for (int k = 0; k < rows.count; ++k) {
      if (rows.listed[k] == 0) continue;
      const PlainRead &r = rows.reads[k].read;
      const auto inputs = rowMajor<const float>(r.input.converted, rows.listed[k], r.input.in.cols);
      multiplyTogether<kSize>(inputs, r.weights, r.sums, before, memory);
      before += piecesOf<kSize>(inputs.rows, r.weights.rows);
    }
  }
};

}  // namespace pulsora
