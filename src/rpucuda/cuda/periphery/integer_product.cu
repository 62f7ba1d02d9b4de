#include "core/batched_launches.h"
#include "cuda/core/launch.cuh"
#include "periphery/read_kernels.h"

// The product of integers on the tensor cores, which add products of bytes in 32 bits, exactly. A
// weight v is the sum of digits of 8 bits, its bytes in two's complement: the last one has a sign,
// the others have none. A level n is one byte with a sign, or two bytes likewise. Products of
// digits that count equally (2^(8 g)) share a sum of 32 bits, which is added to one of 64 bits
// before it can overflow. The result does not depend on the order, nor on how the work is cut.

namespace pulsora {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kLines = 64;  // outputs of a block; a warp takes 16
constexpr int kRows = 32;   // samples of a block
constexpr int kDepth = 64;  // inputs at a time
constexpr int kWords = kDepth / 4;
constexpr int kRowWords = kWords + 4;  // so that the fragments of a warp lie in different banks
constexpr int kRowTiles = kRows / 8;   // of a product of 16 x 8 x 32
// Inputs after which sums of 32 bits are moved on. A group gets at most two products of bytes per
// input, below 2^17 in magnitude.
constexpr int kMovedDepth = 1 << 14;
static_assert(kMovedDepth % kDepth == 0, "sums are moved between slices");
static_assert(kLines == 16 * kWarps, "a warp has one tile of lines");

using Words = uint32_t[kRowWords];

struct Problem {
  const float *levels;  // [rows, depth], whole numbers
  MatrixView<const float> weights;
  IntegerWeights integers;
  float unit;
  float *sums;  // [rows, lines]
  int64_t rows;
};

/// sums += a b for tiles of 16 x 32 and 32 x 8 bytes that the warp's lanes share.
template <bool kSignedA, bool kSignedB>
__device__ inline void multiplyTile(int (&sums)[4], const uint32_t (&a)[4],
                                    const uint32_t (&b)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
// Tiles of 8 x 16 and 16 x 8 bytes, whose fragments are the registers of the larger ones.
#define PULSORA_MULTIPLY_PART(A, B, c, i, j)                                               \
  asm("mma.sync.aligned.m8n8k16.row.col.s32." A "." B ".s32 {%0,%1}, {%2}, {%3}, {%0,%1};" \
      : "+r"(sums[c]), "+r"(sums[(c) + 1])                                                 \
      : "r"(a[i]), "r"(b[j]))
#define PULSORA_MULTIPLY(A, B)          \
  PULSORA_MULTIPLY_PART(A, B, 0, 0, 0); \
  PULSORA_MULTIPLY_PART(A, B, 0, 2, 1); \
  PULSORA_MULTIPLY_PART(A, B, 2, 1, 0); \
  PULSORA_MULTIPLY_PART(A, B, 2, 3, 1)
#else
#define PULSORA_MULTIPLY(A, B)                                     \
  asm("mma.sync.aligned.m16n8k32.row.col.s32." A "." B             \
      ".s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
      : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3]) \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#endif
  if constexpr (kSignedA && kSignedB) {
    PULSORA_MULTIPLY("s8", "s8");
  } else if constexpr (kSignedA) {
    PULSORA_MULTIPLY("s8", "u8");
  } else if constexpr (kSignedB) {
    PULSORA_MULTIPLY("u8", "s8");
  } else {
    PULSORA_MULTIPLY("u8", "u8");
  }
#undef PULSORA_MULTIPLY
#undef PULSORA_MULTIPLY_PART
}

/// Byte `byte` of four numbers, as one word.
__device__ inline uint32_t bytesOf(const int (&v)[4], int byte) {
  uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) word |= (static_cast<uint32_t>(v[i]) >> 8 * byte & 0xFFU) << 8 * i;
  return word;
}

/// The digits of a slice of inputs, for the lines and rows of a block; zeros beyond the matrices.
template <int kDigits, int kPlanes>
struct Slice {
  Words weights[kDigits][kLines];
  Words levels[kPlanes][kRows];

  __device__ void load(const Problem &p, int64_t line0, int64_t row0, int64_t k0) {
    const MatrixView<const float> &w = p.weights;
    const bool alongInputs = w.colStride == 1;  // neighbouring threads read neighbouring weights
    for (int i = static_cast<int>(threadIdx.x); i < kLines * kWords; i += kThreads) {
      const int line = alongInputs ? i / kWords : i % kLines;
      const int word = alongInputs ? i % kWords : i / kLines;
      int v[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int64_t k = k0 + 4 * word + e;
        const bool there = line0 + line < w.rows && k < w.cols;
        v[e] = there ? integerOf(p.integers, w(line0 + line, k)) : 0;
      }
#pragma unroll
      for (int d = 0; d < kDigits; ++d) weights[d][line][word] = bytesOf(v, d);
    }
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kWords; i += kThreads) {
      const int row = i / kWords;
      const int word = i % kWords;
      int n[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int64_t k = k0 + 4 * word + e;
        const bool there = row0 + row < p.rows && k < w.cols;
        n[e] = there ? __float2int_rn(p.levels[(row0 + row) * w.cols + k]) : 0;
      }
#pragma unroll
      for (int d = 0; d < kPlanes; ++d) levels[d][row][word] = bytesOf(n, d);
    }
  }
};

/// A warp's sums of 16 lines and kRows rows; group g counts 2^(8 g).
template <int kDigits, int kPlanes>
struct WarpSums {
  static constexpr int kGroups = kDigits + kPlanes - 1;
  int part[kGroups][kRowTiles][4] = {};
  int64_t whole[kRowTiles][4] = {};

  __device__ void add(const Slice<kDigits, kPlanes> &slice) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int g = lane / 4;
    const int t = lane % 4;
    const int line = static_cast<int>(threadIdx.x) / 32 * 16 + g;
#pragma unroll
    for (int word = 0; word < kWords; word += 8) {
      uint32_t a[kDigits][4];
#pragma unroll
      for (int d = 0; d < kDigits; ++d) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          a[d][e] = slice.weights[d][line + e % 2 * 8][word + t + e / 2 * 4];
      }
#pragma unroll
      for (int j = 0; j < kRowTiles; ++j) {
        uint32_t b[kPlanes][2];
#pragma unroll
        for (int q = 0; q < kPlanes; ++q) {
#pragma unroll
          for (int e = 0; e < 2; ++e) b[q][e] = slice.levels[q][8 * j + g][word + t + e * 4];
        }
        addTile<0, 0>(a, b, j);
      }
    }
  }
  __device__ void moveOn() {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int j = 0; j < kRowTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          whole[j][e] += static_cast<int64_t>(part[group][j][e]) * (1 << 8 * group);
          part[group][j][e] = 0;
        }
      }
    }
  }
  __device__ void store(const Problem &p, int64_t line0, int64_t row0) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int64_t lines = p.weights.rows;
#pragma unroll
    for (int j = 0; j < kRowTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int64_t line = line0 + threadIdx.x / 32 * 16 + lane / 4 + e / 2 * 8;
        const int64_t row = row0 + 8 * j + lane % 4 * 2 + e % 2;
        if (line < lines && row < p.rows) p.sums[row * lines + line] = valueOf(whole[j][e], p.unit);
      }
    }
  }

 private:
  template <int kDigit, int kPlane>
  __device__ void addTile(const uint32_t (&a)[kDigits][4], const uint32_t (&b)[kPlanes][2], int j) {
    multiplyTile<kDigit + 1 == kDigits, kPlane + 1 == kPlanes>(part[kDigit + kPlane][j], a[kDigit],
                                                               b[kPlane]);
    if constexpr (kPlane + 1 < kPlanes) {
      addTile<kDigit, kPlane + 1>(a, b, j);
    } else if constexpr (kDigit + 1 < kDigits) {
      addTile<kDigit + 1, 0>(a, b, j);
    }
  }
};

/// blockIdx.x counts the lines of a block first, then its rows.
template <int kDigits, int kPlanes, int kJobs>
__global__ void __launch_bounds__(kThreads)
    integerProductKernel(const __grid_constant__ Jobs<Problem, kJobs> jobs) {
  awaitEarlier();
  const Problem &p = jobs.ofBlock();
  __shared__ Slice<kDigits, kPlanes> slice;
  const int64_t lineBlocks = (p.weights.rows + kLines - 1) / kLines;
  const int64_t line0 = blockIdx.x % lineBlocks * kLines;
  const int64_t row0 = blockIdx.x / lineBlocks * kRows;
  WarpSums<kDigits, kPlanes> sums;
#pragma unroll 1
  for (int64_t k0 = 0; k0 < p.weights.cols; k0 += kDepth) {
    __syncthreads();  // the previous slice is still read
    slice.load(p, line0, row0, k0);
    __syncthreads();
    sums.add(slice);
    if ((k0 + kDepth) % kMovedDepth == 0) sums.moveOn();
  }
  sums.moveOn();
  sums.store(p, line0, row0);
}

template <int kDigits, int kPlanes>
void multiply(const Context &context, const Problem &p) {
  constexpr JobKernel<Problem> kernel = {
      &integerProductKernel<kDigits, kPlanes, 1>,
      &integerProductKernel<kDigits, kPlanes, kMostJobs<Problem>>};
  const int64_t blocks = (p.weights.rows + kLines - 1) / kLines * ((p.rows + kRows - 1) / kRows);
  launchJob(context.stream, kernel, static_cast<unsigned>(blocks), kThreads, 0, p);
}

}  // namespace

void cudaMultiplyIntegers(const Context &context, const float *levels, int32_t largestLevel,
                          MatrixView<const float> weights, const IntegerWeights &integers,
                          float unit, MatrixView<float> out) {
  const CudaScope scope(context.device);
  if (out.rows == 0 || out.cols == 0) return;
  const Problem p{levels, weights, integers, unit, out.data, out.rows};
  constexpr int32_t kLargestByte = 127;
  if (largestLevel <= kLargestByte) {
    integers.bits == 16 ? multiply<2, 1>(context, p) : multiply<3, 1>(context, p);
  } else {
    integers.bits == 16 ? multiply<2, 2>(context, p) : multiply<3, 2>(context, p);
  }
}

}  // namespace pulsora
