#pragma once

#include "cuda/periphery/row_read.cuh"

// The products of repeated reads, which all blocks of a grid make together: pieces of rows by
// outputs, whose factors go through shared memory in slices.

namespace pulsora {

constexpr int kRepeatThreads = 256;
constexpr int kRepeatSide = 16;  // threads along the rows and along the outputs of a piece
static_assert(kRepeatSide * kRepeatSide == kRepeatThreads, "a thread per part of a piece");

// Rows and outputs of a piece. Blocks with small pieces have little to multiply between two waits
// for memory, so that their slices are deeper.
constexpr int kLargePiece = 64;
constexpr int kSmallPiece = 32;
template <int kSize>
constexpr int kRepeatDepth = kSize == kSmallPiece ? 64 : 16;  // products per slice

template <class T, int kSize>
using Slice = T[kRepeatDepth<kSize>][kSize + 4];  // lines of whole quads, in different banks

/// Shared memory for a slice of inputs and one of weights, of any size and type.
struct alignas(16) RepeatMemory {
  unsigned char bytes[20 * 1024];
};
__device__ inline RepeatMemory &repeatMemory() {
  __shared__ RepeatMemory memory;
  return memory;
}

/// A thread's share of a slice of kSize rows of a matrix from row0 on; 0 outside. It is asked for
/// while the slice before it is multiplied.
template <class T, int kSize>
struct SliceLoader {
  static constexpr int kDepth = kRepeatDepth<kSize>;
  static constexpr int kElements = kSize * kDepth;

  MatrixView<const float> m;
  int64_t row0;
  T held[kElements / kRepeatThreads];

  /// Row and depth of an element: neighbouring threads read neighbours in memory.
  __device__ int rowOf(int i) const { return m.colStride == 1 ? i / kDepth : i % kSize; }
  __device__ int depthOf(int i) const { return m.colStride == 1 ? i % kDepth : i / kSize; }

  template <class Of>
  __device__ void ask(int64_t k0, const Of &of) {
#pragma unroll
    for (int e = 0; e < kElements / kRepeatThreads; ++e) {
      const int i = static_cast<int>(threadIdx.x) + e * kRepeatThreads;
      const int64_t row = row0 + rowOf(i);
      const int64_t k = k0 + depthOf(i);
      held[e] = row < m.rows && k < m.cols ? of(m(row, k)) : T{0};
    }
  }
  __device__ void store(Slice<T, kSize> &slice) const {
#pragma unroll
    for (int e = 0; e < kElements / kRepeatThreads; ++e) {
      const int i = static_cast<int>(threadIdx.x) + e * kRepeatThreads;
      slice[depthOf(i)][rowOf(i)] = held[e];
    }
  }
};

/// A thread's sums of a piece: neighbouring rows and outputs.
template <int kSize, class Product>
struct ThreadSums {
  static constexpr int kPart = kSize / kRepeatSide;  // rows and outputs of a thread
  using Factor = typename Product::Factor;
  using Factors = Slice<Factor, kSize>;

  typename Product::Sum acc[kPart][kPart] = {};

  __device__ static int row() { return static_cast<int>(threadIdx.x) / kRepeatSide * kPart; }
  __device__ static int line() { return static_cast<int>(threadIdx.x) % kRepeatSide * kPart; }

  __device__ void add(const Factors &inputs, const Factors &weights) {
#pragma unroll
    for (int k = 0; k < kRepeatDepth<kSize>; ++k) {
      Factor u[kPart];
      Factor w[kPart];
#pragma unroll
      for (int i = 0; i < kPart; ++i) u[i] = inputs[k][row() + i];
#pragma unroll
      for (int j = 0; j < kPart; ++j) w[j] = weights[k][line() + j];
#pragma unroll
      for (int i = 0; i < kPart; ++i) {
#pragma unroll
        for (int j = 0; j < kPart; ++j) Product::add(acc[i][j], u[i], w[j]);
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
template <int kSize, class Product>
__device__ inline void multiplyTogether(const Product &product, MatrixView<const float> inputs,
                                        MatrixView<const float> weights, float *sums,
                                        int64_t firstBlock) {
  using Factor = typename Product::Factor;
  using Factors = Slice<Factor, kSize>;
  static_assert(2 * sizeof(Factors) <= sizeof(RepeatMemory), "two slices fit");
  Factors &inputSlice = *reinterpret_cast<Factors *>(repeatMemory().bytes);
  Factors &weightSlice = *reinterpret_cast<Factors *>(repeatMemory().bytes + sizeof(Factors));
  constexpr int kDepth = kRepeatDepth<kSize>;
  const int64_t across = (weights.rows + kSize - 1) / kSize;
  const int64_t pieces = piecesOf<kSize>(inputs.rows, weights.rows);
  const auto input = [&](float u) { return product.input(u); };
  const auto weight = [&](float w) { return product.weight(w); };
  const int64_t blocks = gridDim.x;
  const int64_t first = (blockIdx.x + blocks - firstBlock % blocks) % blocks;
  for (int64_t piece = first; piece < pieces; piece += blocks) {
    SliceLoader<Factor, kSize> nextInputs{inputs, piece / across * kSize, {}};
    SliceLoader<Factor, kSize> nextWeights{weights, piece % across * kSize, {}};
    ThreadSums<kSize, Product> ofPiece;
    nextInputs.ask(0, input);
    nextWeights.ask(0, weight);
    for (int64_t k0 = 0; k0 < inputs.cols; k0 += kDepth) {
      __syncthreads();  // the previous slice is still read
      nextInputs.store(inputSlice);
      nextWeights.store(weightSlice);
      __syncthreads();
      nextInputs.ask(k0 + kDepth, input);
      nextWeights.ask(k0 + kDepth, weight);
      ofPiece.add(inputSlice, weightSlice);
    }
    ofPiece.forEach([&](int i, int j, const auto &sum) {
      const int64_t row = nextInputs.row0 + i;
      const int64_t line = nextWeights.row0 + j;
      if (row < inputs.rows && line < weights.rows)
        sums[row * weights.rows + line] = product.result(sum);
    });
  }
}

}  // namespace pulsora
