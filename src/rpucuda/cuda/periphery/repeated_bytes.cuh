#pragma once

#include "cuda/periphery/byte_products.cuh"
#include "cuda/periphery/repeated_product.cuh"

// The integer products of repeated reads on the tensor cores, by all blocks of a grid: pieces of
// samples by outputs, whose factors go through shared memory as bytes.

namespace pulsora {

constexpr int kPieceRows = 64;   // samples of a piece
constexpr int kPieceDepth = 64;  // inputs of a stage
// A sum of 32 bits gets at most two products of bytes for each input, below 2^17 in magnitude.
constexpr int64_t kMostByteDepth = 1 << 14;

/// A piece of kPieceRows samples by 16 kLineGroups outputs, whose levels have kPlanes bytes and
/// whose weights have kDigits. Warps share the groups of 16 outputs, and the samples of a group.
template <int kDigits, int kPlanes, int kLineGroups>
class BytePiece {
 public:
  static constexpr int kLines = 16 * kLineGroups;

  __device__ BytePiece(const PlainRead &read, int64_t row0, int64_t rows, int64_t line0)
      : r_(read), row0_(row0), rows_(rows), line0_(line0) {}

  /// Stores the sums of the piece; by all threads of the block.
  __device__ void multiply() {
    ask(0);
    for (int64_t k0 = 0; k0 < r_.weights.cols; k0 += kPieceDepth) {
      __syncthreads();  // the stage before it is still read
      store();
      __syncthreads();
      ask(k0 + kPieceDepth);
      add();
    }
    __syncthreads();  // the next piece stores into the same memory
    write();
  }

 private:
  static constexpr int kWarps = kRepeatThreads / 32;
  static constexpr int kTiles = kPieceRows / 8 * kLineGroups / kWarps;  // of 8 samples, of a warp
  static constexpr int kGroups = kDigits + kPlanes - 1;  // products that count equally
  static constexpr int kQuads = kPieceDepth / 4;
  static constexpr int kCopies = kLines * kQuads / kRepeatThreads;  // quads of weights of a thread
  static constexpr int kChunks = kPieceDepth / 16;
  static_assert(kPieceRows * kChunks == kRepeatThreads, "a chunk of levels for each thread");
  static_assert(kDigits * kLines * kPieceDepth + kPlanes * kPieceRows * kPieceDepth <=
                    static_cast<int>(sizeof(RepeatMemory)),
                "a stage fits");

  /// The place of a chunk of 16 bytes of a line, without bank conflicts of its readers.
  __device__ static int placeOf(int line, int chunk) {
    return line * kPieceDepth + ((chunk ^ (line >> 1 & 3)) << 4);
  }
  __device__ static unsigned char *digits(int d) {
    return repeatMemory().bytes + d * kLines * kPieceDepth;
  }
  __device__ static unsigned char *levels(int q) {
    return repeatMemory().bytes + (kDigits * kLines + q * kPieceRows) * kPieceDepth;
  }
  /// Output and first input of a thread's quad number i: neighbouring threads read neighbours.
  __device__ int lineOf(int i) const {
    const int at = static_cast<int>(threadIdx.x) + i * kRepeatThreads;
    return r_.weights.colStride == 1 ? at / kQuads : at % kLines;
  }
  __device__ int inputOf(int i) const {
    const int at = static_cast<int>(threadIdx.x) + i * kRepeatThreads;
    return 4 * (r_.weights.colStride == 1 ? at % kQuads : at / kLines);
  }

  /// Loads a thread's share of a stage, while the stage before it is multiplied.
  __device__ void ask(int64_t k0) {
    const int64_t row = row0_ + static_cast<int>(threadIdx.x) / kChunks;
    const int64_t level = k0 + static_cast<int>(threadIdx.x) % kChunks * 16;
    const LevelBytes &bytes = r_.input.bytes;
    const bool isThere = row < rows_ && level < bytes.pitch;
#pragma unroll
    for (int q = 0; q < kPlanes; ++q)
      levels_[q] = isThere ? *reinterpret_cast<const uint4 *>(bytes.data + q * bytes.plane +
                                                              row * bytes.pitch + level)
                           : uint4{};
    const MatrixView<const float> &w = r_.weights;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int64_t line = line0_ + lineOf(i);
      const int64_t k = k0 + inputOf(i);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        weights_[i][e] = line < w.rows && k + e < w.cols ? w(line, k + e) : 0.0f;
    }
  }
  __device__ void store() const {
    const int row = static_cast<int>(threadIdx.x) / kChunks;
    const int chunk = static_cast<int>(threadIdx.x) % kChunks;
#pragma unroll
    for (int q = 0; q < kPlanes; ++q)
      *reinterpret_cast<uint4 *>(levels(q) + placeOf(row, chunk)) = levels_[q];
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      uint32_t of[kDigits];
      digitsOf(r_.integers, weights_[i], of);
      const int at = placeOf(lineOf(i), inputOf(i) / 16) + inputOf(i) % 16;
#pragma unroll
      for (int d = 0; d < kDigits; ++d) *reinterpret_cast<uint32_t *>(digits(d) + at) = of[d];
    }
  }
  __device__ static int firstLine() {
    return static_cast<int>(threadIdx.x) / 32 % kLineGroups * 16;
  }
  __device__ static int firstRow() {
    return static_cast<int>(threadIdx.x) / 32 / kLineGroups * kTiles * 8;
  }
  __device__ static uint32_t addressOf(const unsigned char *at) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(at));
  }

  __device__ void add() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      uint32_t a[kDigits][4];
#pragma unroll
      for (int d = 0; d < kDigits; ++d) {
        const int line = firstLine() + lane % 16;
        loadFragments(addressOf(digits(d) + placeOf(line, 2 * step + lane / 16)), a[d]);
      }
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        uint32_t b[kPlanes][2];
#pragma unroll
        for (int q = 0; q < kPlanes; ++q) {
          const int row = firstRow() + 8 * j + lane % 8;
          const unsigned char *from = levels(q) + placeOf(row, 2 * step + lane / 8 % 2);
          loadFragment(addressOf(from), b[q]);
        }
        addTile<0, 0>(a, b, j);
      }
    }
  }
  template <int kDigit, int kPlane>
  __device__ void addTile(const uint32_t (&a)[kDigits][4], const uint32_t (&b)[kPlanes][2],
                          int tile) {
    multiplyBytes<kDigit + 1 == kDigits, kPlane + 1 == kPlanes>(
        part_[kDigit + kPlane][tile], a[kDigit], b[kPlane][0], b[kPlane][1]);
    if constexpr (kPlane + 1 < kPlanes) {
      addTile<kDigit, kPlane + 1>(a, b, tile);
    } else if constexpr (kDigit + 1 < kDigits) {
      addTile<kDigit + 1, 0>(a, b, tile);
    }
  }

  __device__ void write() const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int64_t lines = r_.weights.rows;
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int64_t row = row0_ + firstRow() + 8 * j + lane % 4 * 2 + e % 2;
        const int64_t line = line0_ + firstLine() + lane / 4 + 8 * (e / 2);
        if (row >= rows_ || line >= lines) continue;
        int64_t sum = 0;
#pragma unroll
        for (int g = 0; g < kGroups; ++g)
          sum += static_cast<int64_t>(part_[g][j][e]) * (1 << 8 * g);
        r_.sums[row * lines + line] = valueOf(sum, r_.unit);
      }
    }
  }

  const PlainRead &r_;
  int64_t row0_;
  int64_t rows_;
  int64_t line0_;
  uint4 levels_[kPlanes];
  float weights_[kCopies][4];
  int part_[kGroups][kTiles][4] = {};
};

/// Outputs of a piece, where there are many pieces or few.
template <bool kMany>
constexpr int kPieceLines = kMany ? 32 : 16;

template <bool kMany>
__device__ inline int64_t bytePiecesOf(int64_t rows, int64_t lines) {
  return (rows + kPieceRows - 1) / kPieceRows *
         ((lines + kPieceLines<kMany> - 1) / kPieceLines<kMany>);
}

/// The sums of the first `rows` listed rows of a read; the blocks take its pieces in turn, from
/// block `firstBlock` on.
template <bool kMany>
__device__ inline void multiplyBytesTogether(const PlainRead &r, int64_t rows, int64_t firstBlock) {
  constexpr int kLineGroups = kPieceLines<kMany> / 16;
  const int64_t across = (r.weights.rows + kPieceLines<kMany> - 1) / kPieceLines<kMany>;
  const int64_t pieces = bytePiecesOf<kMany>(rows, r.weights.rows);
  const int64_t blocks = gridDim.x;
  const bool isOneByte = r.input.bytes.plane == 0;
  for (int64_t piece = (blockIdx.x + blocks - firstBlock % blocks) % blocks; piece < pieces;
       piece += blocks) {
    const int64_t row0 = piece / across * kPieceRows;
    const int64_t line0 = piece % across * kPieceLines<kMany>;
    if (r.integers.bits == 16) {
      isOneByte ? BytePiece<2, 1, kLineGroups>(r, row0, rows, line0).multiply()
                : BytePiece<2, 2, kLineGroups>(r, row0, rows, line0).multiply();
    } else {
      isOneByte ? BytePiece<3, 1, kLineGroups>(r, row0, rows, line0).multiply()
                : BytePiece<3, 2, kLineGroups>(r, row0, rows, line0).multiply();
    }
  }
}

}  // namespace pulsora
