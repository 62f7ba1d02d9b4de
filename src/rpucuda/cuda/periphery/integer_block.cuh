#pragma once

#include "core/view.h"
#include "cuda/core/async_copy.cuh"
#include "cuda/periphery/byte_products.cuh"
#include "periphery/integer_sums.h"

// The product of integers on the tensor cores, which add products of bytes in 32 bits, exactly. A
// weight v is the sum of digits of 8 bits, its bytes in two's complement: the last one has a sign,
// the others have none. A level n is one byte with a sign, or two bytes likewise. Products of
// digits that count equally (2^(8 g)) share a sum of 32 bits. The result does not depend on the
// order, nor on how the work is cut.

namespace pulsora {

constexpr int kLinesOfWarp = 16;
constexpr int kStageDepth = 64;  // inputs of a stage
constexpr int kStageQuads = kStageDepth / 4;
constexpr int kStageChunks = kStageDepth / 16;  // pieces of 16 levels
// Inputs of a part: a sum of 32 bits gets at most two products of bytes per input, below 2^17 in
// magnitude.
constexpr int64_t kMostDepth = 1 << 14;
constexpr int64_t kLeastDepth = 256;

/// The factors of a product, and the place of its sums.
struct IntegerProblem {
  LevelBytes levels;                // [rows, depth]
  MatrixView<const float> weights;  // [lines, depth]
  IntegerWeights integers;
  float unit;
  float *sums;       // [rows, lines]; of one part
  int64_t *partial;  // [parts, rows, lines]; of several parts, else null
  int rows;
  int depthOfPart;
  int rowBlocks;
  bool inQuads;  // whether neighbours in memory can be copied by four
};

/// A block of kWarps warps makes the sums of kLines outputs for kRows rows. The levels of a row are
/// kPlanes planes of bytes. Copies of kStages stages are in flight at once, which hides the latency
/// of memory.
template <int kPlanes_, int kWarps, int kTiles, int kStages_ = 4>
struct BlockSize {
  static constexpr int kPlanes = kPlanes_;
  static constexpr int kStages = kStages_;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kLines = kLinesOfWarp * kWarps;
  static constexpr int kRowTiles = kTiles;  // of a product of 16 x 8 x 32
  static constexpr int kRows = 8 * kTiles;
  static constexpr int kLineQuads = kLines / 4;
  static constexpr uint32_t kPlaneBytes = kRows * kStageDepth;
  static constexpr uint32_t kLevelBytes = kPlanes * kPlaneBytes;
  static constexpr uint32_t kStageBytes = kLevelBytes + kLines * kStageDepth * sizeof(float);
  static constexpr size_t kSharedBytes = kStages * kStageBytes;
  static constexpr int kBlocks = kSharedBytes * 2 <= 200 * 1024 ? 2 : 1;  // a processor
};

/// A block whose weights have kDigits digits each, and lie along the inputs in memory if kAlong.
template <class Size, int kDigits_, bool kAlong_>
struct Shape : Size {
  static constexpr int kDigits = kDigits_;
  static constexpr bool kAlong = kAlong_;
};

/// A thread's share of the copies of a stage. Pieces are placed so that neither copies nor reads of
/// fragments have bank conflicts.
template <class S>
class Loader {
 public:
  __device__ Loader(const IntegerProblem &problem, uint32_t shared, int row0, int line0, int begin,
                    int end)
      : p_(problem), end_(end) {
    const int me = static_cast<int>(threadIdx.x);
    const int chunk = me % kStageChunks;
    row_ = row0 + me / kStageChunks;
    level_ = begin + 16 * chunk;
    levels_ = p_.levels.data + row_ * p_.levels.pitch + level_;
    levelsTo_ = shared + placeOfLevels(me / kStageChunks, chunk);
    const int line = S::kAlong ? me / kStageQuads : me % S::kLineQuads * 4;
    const int k = S::kAlong ? me % kStageQuads * 4 : me / S::kLineQuads;
    line_ = line0 + line;
    k_ = begin + k;
    weights_ = p_.weights.data + line_ * p_.weights.rowStride + k_ * p_.weights.colStride;
    weightsTo_ = shared + S::kLevelBytes + 16U * placeOfQuad(line, k);
  }

  /// Starts the copies of the inputs from `first` on, counted from the first of the part.
  __device__ void ask(int stage, int first) const {
    const uint32_t to = static_cast<uint32_t>(stage) * S::kStageBytes;
    askLevels(to, first);
    if (p_.inQuads) {
      askQuads(to, first);
    } else {
      askWords(to, first);
    }
  }

  /// The place of 16 levels in a plane, in bytes.
  __device__ static uint32_t placeOfLevels(int row, int chunk) {
    return static_cast<uint32_t>(row * kStageDepth + ((chunk ^ (row >> 1 & 3)) << 4));
  }
  /// The place of four weights, in quads.
  __device__ static uint32_t placeOfQuad(int line, int k) {
    return static_cast<uint32_t>(S::kAlong ? line * kStageQuads + (k / 4 ^ (line & 1) << 2)
                                           : k * S::kLineQuads + (line / 4 ^ (k >> 2 & 3) << 1));
  }

 private:
  static constexpr int kCopies = S::kLines * kStageQuads / S::kThreads;
  static constexpr int kLineStep = S::kAlong ? S::kThreads / kStageQuads : 0;
  static constexpr int kInputStep = S::kAlong ? 0 : S::kThreads / S::kLineQuads;
  static constexpr int kRowStep = S::kThreads / kStageChunks;
  static_assert(S::kAlong ? kLineStep % 2 == 0 : kInputStep == 8, "places of a thread's copies");
  static_assert(kRowStep % 8 == 0 && S::kRows % kRowStep == 0, "places of a thread's levels");

  /// The place of a thread's copy number i, from that of its first one.
  __device__ uint32_t placeOfCopy(int i) const {
    return S::kAlong ? weightsTo_ + 16U * kStageQuads * kLineStep * i
                     : (weightsTo_ ^ 64U * (i & 1)) + 16U * S::kLineQuads * kInputStep * i;
  }
  // Copies of what all copies need, because the compiler would load it again after each one.
  __device__ void askLevels(uint32_t to, int first) const {
    const LevelBytes levels = p_.levels;
    const int rows = p_.rows;
    const bool isLevel = level_ + first < end_;
#pragma unroll
    for (int q = 0; q < S::kPlanes; ++q) {
#pragma unroll
      for (int i = 0; i < S::kRows / kRowStep; ++i) {
        const bool there = row_ + i * kRowStep < rows && isLevel;
        const uint8_t *from = levels_ + q * levels.plane + i * kRowStep * levels.pitch + first;
        copyPieceAsync(levelsTo_ + to + q * S::kPlaneBytes + i * kRowStep * kStageDepth,
                       there ? from : levels.data, there);
      }
    }
  }
  __device__ void askQuads(uint32_t to, int first) const {
    const MatrixView<const float> weights = p_.weights;
    const int lines = static_cast<int>(weights.rows);
    const float *from = weights_ + first * weights.colStride;
    const int64_t step = kLineStep * weights.rowStride + kInputStep * weights.colStride;
#pragma unroll
    for (int i = 0; i < kCopies; ++i, from += step) {
      const bool there = line_ + i * kLineStep < lines && k_ + first + i * kInputStep < end_;
      copyPieceAsync(placeOfCopy(i) + to, there ? from : weights.data, there);
    }
  }
  __device__ void askWords(uint32_t to, int first) const {
#pragma unroll 1
    for (int word = 0; word < 4 * kCopies; ++word) {
      const int i = word / 4;
      const int line = line_ + i * kLineStep + (S::kAlong ? 0 : word % 4);
      const int k = k_ + first + i * kInputStep + (S::kAlong ? word % 4 : 0);
      const bool there = line < p_.weights.rows && k < end_;
      copyWordAsync(placeOfCopy(i) + to + 4U * (word % 4),
                    there ? &p_.weights(line, k) : p_.weights.data, there);
    }
  }

  const IntegerProblem &p_;
  int end_;
  int row_;    // of the first copy of levels
  int level_;  // the first input of it
  int line_;   // of the first copy of weights
  int k_;
  const uint8_t *levels_;
  const float *weights_;
  uint32_t levelsTo_;
  uint32_t weightsTo_;
};

/// A warp's sums of 16 lines and kRows rows; group g counts 2^(8 g).
template <class S>
struct WarpSums {
  static constexpr int kGroups = S::kDigits + S::kPlanes - 1;
  int part[kGroups][S::kRowTiles][4] = {};

  /// The two lines of a lane, counted from the block's first: 0 or 1.
  __device__ static int line(int which) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int first = static_cast<int>(threadIdx.x) / 32 * kLinesOfWarp;
    return first + (S::kAlong ? lane / 4 + 8 * which : lane / 4 * 2 + which);
  }

  __device__ void add(uint32_t shared, const float4 *weights, const IntegerWeights &integers) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      uint32_t a[S::kDigits][4];
      loadDigits(weights, step, integers, a);
#pragma unroll
      for (int j = 0; j < S::kRowTiles; j += 2) {
        const int row = 8 * (j + lane / 16) + lane % 8;
        const uint32_t from = shared + Loader<S>::placeOfLevels(row, 2 * step + lane / 8 % 2);
        uint32_t b[S::kPlanes][4];
#pragma unroll
        for (int q = 0; q < S::kPlanes; ++q) loadFragments(from + q * S::kPlaneBytes, b[q]);
#pragma unroll
        for (int half = 0; half < 2; ++half) addTile<0, 0>(a, b, j + half, 2 * half);
      }
    }
  }

  __device__ int64_t total(int tile, int e) const {
    int64_t sum = 0;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) sum += static_cast<int64_t>(part[g][tile][e]) * (1 << 8 * g);
    return sum;
  }

 private:
  /// The digits of 16 lines and 32 inputs.
  __device__ static void loadDigits(const float4 *weights, int step, const IntegerWeights &integers,
                                    uint32_t (&a)[S::kDigits][4]) {
    const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int k = 32 * step + 16 * half + 4 * t;
      float w[2][4];
      if constexpr (S::kAlong) {
#pragma unroll
        for (int which = 0; which < 2; ++which) {
          const float4 quad = weights[Loader<S>::placeOfQuad(line(which), k)];
          w[which][0] = quad.x, w[which][1] = quad.y, w[which][2] = quad.z, w[which][3] = quad.w;
        }
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float4 *quad = &weights[Loader<S>::placeOfQuad(line(0), k + e)];
          const float2 pair = reinterpret_cast<const float2 *>(quad)[line(0) / 2 % 2];
          w[0][e] = pair.x, w[1][e] = pair.y;
        }
      }
#pragma unroll
      for (int which = 0; which < 2; ++which) {
        uint32_t digits[S::kDigits];
        digitsOf(integers, w[which], digits);
#pragma unroll
        for (int d = 0; d < S::kDigits; ++d) a[d][2 * half + which] = digits[d];
      }
    }
  }

  template <int kDigit, int kPlane>
  __device__ void addTile(const uint32_t (&a)[S::kDigits][4], const uint32_t (&b)[S::kPlanes][4],
                          int tile, int first) {
    multiplyBytes<kDigit + 1 == S::kDigits, kPlane + 1 == S::kPlanes>(
        part[kDigit + kPlane][tile], a[kDigit], b[kPlane][first], b[kPlane][first + 1]);
    if constexpr (kPlane + 1 < S::kPlanes) {
      addTile<kDigit, kPlane + 1>(a, b, tile, first);
    } else if constexpr (kDigit + 1 < S::kDigits) {
      addTile<kDigit + 1, 0>(a, b, tile, first);
    }
  }
};

/// Makes the sums of a block of a product, for one of its parts; by all threads of a block of a
/// kernel, in its dynamic shared memory. Blocks count the rows first, then the lines. Calls
/// beforeStores() before it writes to memory.
template <class S, class Function>
__device__ inline void multiplyBlock(const IntegerProblem &p, int block, int part,
                                     const Function &beforeStores) {
  extern __shared__ __align__(128) unsigned char stages[];
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(stages));
  const int lines = static_cast<int>(p.weights.rows);
  const int row0 = block % p.rowBlocks * S::kRows;
  const int line0 = block / p.rowBlocks * S::kLines;
  const int begin = part * p.depthOfPart;
  const int end = min(begin + p.depthOfPart, static_cast<int>(p.weights.cols));
  const int steps = (end - begin + kStageDepth - 1) / kStageDepth;
  const Loader<S> loader(p, shared, row0, line0, begin, end);
  WarpSums<S> sums;
  const auto ask = [&](int step) {
    if (step < steps) loader.ask(step % S::kStages, step * kStageDepth);
    endCopyGroup();  // also an empty group, so that groups can be counted
  };
#pragma unroll
  for (int step = 0; step < S::kStages - 1; ++step) ask(step);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    awaitCopies<S::kStages - 2>();
    __syncthreads();
    ask(step + S::kStages - 1);
    const uint32_t stage = static_cast<uint32_t>(step % S::kStages) * S::kStageBytes;
    sums.add(shared + stage, reinterpret_cast<const float4 *>(stages + stage + S::kLevelBytes),
             p.integers);
  }
  beforeStores();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int64_t *partial = p.partial + static_cast<int64_t>(part) * p.rows * lines;
#pragma unroll
  for (int j = 0; j < S::kRowTiles; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = row0 + 8 * j + lane % 4 * 2 + e % 2;
      const int line = line0 + sums.line(e / 2);
      if (row >= p.rows || line >= lines) continue;
      const int64_t place = static_cast<int64_t>(row) * lines + line;
      if (p.partial) {
        partial[place] = sums.total(j, e);
      } else {
        p.sums[place] = valueOf(sums.total(j, e), p.unit);
      }
    }
  }
}

}  // namespace pulsora
