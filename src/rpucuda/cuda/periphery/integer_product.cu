#include "core/backend.h"
#include "core/batched_launches.h"
#include "cuda/core/async_copy.cuh"
#include "cuda/core/launch.cuh"
#include "cuda/periphery/byte_products.cuh"
#include "periphery/read_kernels.h"

// The product of integers on the tensor cores, which add products of bytes in 32 bits, exactly. A
// weight v is the sum of digits of 8 bits, its bytes in two's complement: the last one has a sign,
// the others have none. A level n is one byte with a sign, or two bytes likewise. Products of
// digits that count equally (2^(8 g)) share a sum of 32 bits. The result does not depend on the
// order, nor on how the work is cut.

namespace pulsora {
namespace {

constexpr int kLinesOfWarp = 16;
constexpr int kDepth = 64;  // inputs of a stage
constexpr int kQuads = kDepth / 4;
constexpr int kChunks = kDepth / 16;  // pieces of 16 levels
constexpr int kStages = 4;            // in flight at once, which hides the latency of memory
// Inputs of a part: a sum of 32 bits gets at most two products of bytes per input, below 2^17 in
// magnitude.
constexpr int64_t kMostDepth = 1 << 14;
constexpr int64_t kLeastDepth = 256;
constexpr int64_t kMost = 1 << 30;  // lines, rows or inputs: they fit into 32 bits
constexpr int64_t kLargeBlocks = 96;
constexpr int64_t kSmallBlocks = 264;  // two for each processor of an H100

struct Problem {
  LevelBytes levels;
  MatrixView<const float> weights;  // [lines, depth]
  IntegerWeights integers;
  float unit;
  float *sums;       // [rows, lines]; of one part
  int64_t *partial;  // [parts, rows, lines]; of several parts
  int rows;
  int depthOfPart;
  int rowBlocks;
  bool inQuads;  // whether neighbours in memory can be copied by four
  bool beside;   // whether to overlap the previous kernel
};

/// A block of kWarps warps makes the sums of kLines outputs for kRows rows. The levels of a row are
/// kPlanes planes of bytes, and weights lie along the inputs in memory if kAlong.
template <int kDigits_, int kPlanes_, bool kAlong_, int kWarps, int kTiles>
struct Shape {
  static constexpr int kDigits = kDigits_;
  static constexpr int kPlanes = kPlanes_;
  static constexpr bool kAlong = kAlong_;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kLines = kLinesOfWarp * kWarps;
  static constexpr int kRowTiles = kTiles;  // of a product of 16 x 8 x 32
  static constexpr int kRows = 8 * kTiles;
  static constexpr int kLineQuads = kLines / 4;
  static constexpr uint32_t kPlaneBytes = kRows * kDepth;
  static constexpr uint32_t kLevelBytes = kPlanes * kPlaneBytes;
  static constexpr uint32_t kStageBytes = kLevelBytes + kLines * kDepth * sizeof(float);
  static constexpr int kBlocks = kStages * kStageBytes * 2 <= 200 * 1024 ? 2 : 1;  // a processor
};

/// A thread's share of the copies of a stage. Pieces are placed so that neither copies nor reads of
/// fragments have bank conflicts.
template <class S>
class Loader {
 public:
  __device__ Loader(const Problem &problem, uint32_t shared, int row0, int line0, int begin,
                    int end)
      : p_(problem), end_(end) {
    const int me = static_cast<int>(threadIdx.x);
    const int chunk = me % kChunks;
    row_ = row0 + me / kChunks;
    level_ = begin + 16 * chunk;
    levels_ = p_.levels.data + row_ * p_.levels.pitch + level_;
    levelsTo_ = shared + placeOfLevels(me / kChunks, chunk);
    const int line = S::kAlong ? me / kQuads : me % S::kLineQuads * 4;
    const int k = S::kAlong ? me % kQuads * 4 : me / S::kLineQuads;
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
    return static_cast<uint32_t>(row * kDepth + ((chunk ^ (row >> 1 & 3)) << 4));
  }
  /// The place of four weights, in quads.
  __device__ static uint32_t placeOfQuad(int line, int k) {
    return static_cast<uint32_t>(S::kAlong ? line * kQuads + (k / 4 ^ (line & 1) << 2)
                                           : k * S::kLineQuads + (line / 4 ^ (k >> 2 & 3) << 1));
  }

 private:
  static constexpr int kCopies = S::kLines * kQuads / S::kThreads;
  static constexpr int kLineStep = S::kAlong ? S::kThreads / kQuads : 0;
  static constexpr int kInputStep = S::kAlong ? 0 : S::kThreads / S::kLineQuads;
  static constexpr int kRowStep = S::kThreads / kChunks;
  static_assert(S::kAlong ? kLineStep % 2 == 0 : kInputStep == 8, "places of a thread's copies");
  static_assert(kRowStep % 8 == 0 && S::kRows % kRowStep == 0, "places of a thread's levels");

  /// The place of a thread's copy number i, from that of its first one.
  __device__ uint32_t placeOfCopy(int i) const {
    return S::kAlong ? weightsTo_ + 16U * kQuads * kLineStep * i
                     : (weightsTo_ ^ 64U * (i & 1)) + 16U * S::kLineQuads * kInputStep * i;
  }
  __device__ void askLevels(uint32_t to, int first) const {
#pragma unroll
    for (int q = 0; q < S::kPlanes; ++q) {
#pragma unroll
      for (int i = 0; i < S::kRows / kRowStep; ++i) {
        const bool there = row_ + i * kRowStep < p_.rows && level_ + first < end_;
        const uint8_t *from =
            levels_ + q * p_.levels.plane + i * kRowStep * p_.levels.pitch + first;
        copyPieceAsync(levelsTo_ + to + q * S::kPlaneBytes + i * kRowStep * kDepth,
                       there ? from : p_.levels.data, there);
      }
    }
  }
  __device__ void askQuads(uint32_t to, int first) const {
    const float *from = weights_ + first * p_.weights.colStride;
    const int64_t step = kLineStep * p_.weights.rowStride + kInputStep * p_.weights.colStride;
#pragma unroll
    for (int i = 0; i < kCopies; ++i, from += step) {
      const bool there =
          line_ + i * kLineStep < p_.weights.rows && k_ + first + i * kInputStep < end_;
      copyPieceAsync(placeOfCopy(i) + to, there ? from : p_.weights.data, there);
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

  const Problem &p_;
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

/// blockIdx.x counts the rows of a block first, then its lines; blockIdx.y is the part.
template <class S, int kJobs>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    integerProductKernel(const __grid_constant__ Jobs<Problem, kJobs> jobs) {
  const Problem &p = jobs.ofBlock();
  if (!p.beside) awaitEarlier();
  extern __shared__ __align__(128) unsigned char stages[];
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(stages));
  const int lines = static_cast<int>(p.weights.rows);
  const int row0 = static_cast<int>(blockIdx.x) % p.rowBlocks * S::kRows;
  const int line0 = static_cast<int>(blockIdx.x) / p.rowBlocks * S::kLines;
  const int begin = static_cast<int>(blockIdx.y) * p.depthOfPart;
  const int end = min(begin + p.depthOfPart, static_cast<int>(p.weights.cols));
  const int steps = (end - begin + kDepth - 1) / kDepth;
  const Loader<S> loader(p, shared, row0, line0, begin, end);
  WarpSums<S> sums;
  const auto ask = [&](int step) {
    if (step < steps) loader.ask(step % kStages, step * kDepth);
    endCopyGroup();  // also an empty group, so that groups can be counted
  };
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) ask(step);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    awaitCopies<kStages - 2>();
    __syncthreads();
    ask(step + kStages - 1);
    const uint32_t stage = static_cast<uint32_t>(step % kStages) * S::kStageBytes;
    sums.add(shared + stage, reinterpret_cast<const float4 *>(stages + stage + S::kLevelBytes),
             p.integers);
  }
  if (p.beside) awaitEarlier();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int64_t *partial = p.partial + static_cast<int64_t>(blockIdx.y) * p.rows * lines;
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

template <class S>
void multiply(const Context &context, Problem p, unsigned parts) {
  constexpr JobKernel<Problem> kernel = {&integerProductKernel<S, 1>,
                                         &integerProductKernel<S, kMostJobs<Problem>>};
  constexpr size_t kSharedBytes = kStages * S::kStageBytes;
  const auto letShare = [](auto code) {
    PULSORA_CUDA_CHECK(cudaFuncSetAttribute(code, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            static_cast<int>(kSharedBytes)));
  };
  letShare(kernel.one);
  if (BatchedLaunches::areKept()) letShare(kernel.several);
  p.rowBlocks = (p.rows + S::kRows - 1) / S::kRows;
  const int64_t blocks = p.rowBlocks * ((p.weights.rows + S::kLines - 1) / S::kLines);
  launchJob(context.stream, kernel, dim3(static_cast<unsigned>(blocks), parts), S::kThreads,
            kSharedBytes, p);
}

constexpr int64_t kLargeSide = 128;  // lines and rows of a large block
constexpr int64_t kSmallSide = 64;

int64_t blocksOf(int64_t rows, int64_t lines, int64_t side) {
  return (rows + side - 1) / side * ((lines + side - 1) / side);
}

bool takesLargeBlocks(int64_t rows, int64_t lines, bool oneByte) {
  return oneByte && rows > kSmallSide && blocksOf(rows, lines, kLargeSide) >= kLargeBlocks;
}

template <int kDigits, bool kAlong>
void multiplyDigits(const Context &context, const Problem &p, unsigned parts) {
  if (p.levels.plane > 0) {
    multiply<Shape<kDigits, 2, kAlong, 4, 4>>(context, p, parts);
  } else if (takesLargeBlocks(p.rows, p.weights.rows, true)) {
    multiply<Shape<kDigits, 1, kAlong, 8, 16>>(context, p, parts);
  } else {
    multiply<Shape<kDigits, 1, kAlong, 4, 8>>(context, p, parts);
  }
}

}  // namespace

int64_t cudaIntegerParts(MatrixView<const float> weights, int64_t rows, bool oneByte, bool plain) {
  const int64_t depth = weights.cols;
  const int64_t necessary = (depth + kMostDepth - 1) / kMostDepth;
  if (!plain || takesLargeBlocks(rows, weights.rows, oneByte)) return necessary;
  const int64_t blocks =
      pulsora::max(blocksOf(rows, weights.rows, kSmallSide), int64_t{1}) * (oneByte ? 1 : 2);
  return pulsora::max(pulsora::min(kSmallBlocks / blocks, depth / kLeastDepth), necessary);
}

void cudaMultiplyIntegers(const Context &context, const LevelBytes &levels, int64_t rows,
                          MatrixView<const float> weights, const IntegerWeights &integers,
                          const IntegerSums &to, bool beside) {
  const CudaScope scope(context.device);
  if (rows == 0 || weights.rows == 0) return;
  PULSORA_CHECK(InputError, pulsora::max(rows, pulsora::max(weights.rows, weights.cols)) <= kMost,
                "a read of ", rows, " samples by an array [", weights.rows, ", ", weights.cols,
                "] is more than the GPU takes; use smaller batches");
  const bool along = weights.colStride == 1;
  const int64_t lead = along ? weights.rowStride : weights.colStride;
  const int64_t across = along ? weights.cols : weights.rows;
  const bool inQuads = (along || weights.rowStride == 1) && across % 4 == 0 && lead % 4 == 0 &&
                       reinterpret_cast<uintptr_t>(weights.data) % sizeof(float4) == 0;
  const int64_t parts = pulsora::max(to.parts, int64_t{1});
  const int64_t depthOfPart = ((weights.cols + parts - 1) / parts + kDepth - 1) / kDepth * kDepth;
  const Problem p{levels,
                  weights,
                  integers,
                  to.unit,
                  to.sums,
                  to.parts > 1 ? to.partial : nullptr,
                  static_cast<int>(rows),
                  static_cast<int>(depthOfPart),
                  0,
                  inQuads,
                  beside};
  const auto count = static_cast<unsigned>(parts);
  if (along) {
    integers.bits == 16 ? multiplyDigits<2, true>(context, p, count)
                        : multiplyDigits<3, true>(context, p, count);
  } else {
    integers.bits == 16 ? multiplyDigits<2, false>(context, p, count)
                        : multiplyDigits<3, false>(context, p, count);
  }
  const int64_t size = rows * weights.rows;
  if (to.parts > 1 && to.joined) forEach(context, size, JoinParts{to, size});
}

}  // namespace pulsora
