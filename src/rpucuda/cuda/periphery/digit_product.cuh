#pragma once

#include "cuda/core/async_copy.cuh"
#include "cuda/core/launch.cuh"
#include "cuda/core/warpgroup.cuh"
#include "cuda/periphery/weight_digits.cuh"
#include "periphery/integer_sums.h"

// The product of integers for many samples on the tensor cores of compute capability 9.0: bytes of
// levels times bytes of weights that were made before (weight_digits.cuh). A block makes the sums
// of kLines outputs for kRows samples. Each of its two warpgroups takes half of the samples, and
// has a sum for each digit.

namespace pulsora::digits {

constexpr int kLines = 64;
constexpr int kRows = 256;
constexpr int kDepth = 128;  // inputs of a stage: bytes of a row in shared memory
constexpr int kStages = 4;   // in shared memory: two are multiplied, two are copied
constexpr int kThreads = 256;
constexpr int kSumsOfDigit = 64;  // of a thread: 64 x 128 sums of a warpgroup

template <int kDigits>
constexpr uint32_t kStageBytes = (kDigits * kLines + kRows) * kDepth;

struct DigitProblem {
  LevelBytes levels;  // [rows, depth], one plane
  WeightDigits weights;
  float *sums;    // [rows, pitch], from the first line on
  int64_t pitch;  // outputs of the array
  float unit;
  int rows;
  int lines;
  int depth;
  int rowBlocks;
};

/// A thread's share of the copies of a stage: pieces of 16 bytes, permuted as describe() says.
template <int kDigits>
class Loader {
 public:
  __device__ Loader(const DigitProblem &problem, uint32_t shared, int row0, int line0)
      : p_(problem) {
    const int me = static_cast<int>(threadIdx.x);
    first_ = me % kPieces * 16;
    row_ = row0 + me / kPieces;
    line_ = line0 + me / kPieces;
    to_ =
        shared + static_cast<uint32_t>(me / kPieces * kDepth + (first_ ^ (me / kPieces % 8 << 4)));
  }

  __device__ void ask(int step) const {
    const int k = step * kDepth + first_;
    const bool isInput = k < p_.depth;
    const uint32_t to = to_ + static_cast<uint32_t>(step % kStages) * kStageBytes<kDigits>;
    const uint8_t *weights = p_.weights.data + line_ * p_.weights.pitch + k;
#pragma unroll
    for (int d = 0; d < kDigits; ++d, weights += p_.weights.plane) {
#pragma unroll
      for (int i = 0; i < kLines; i += kStep) {
        const bool there = isInput && line_ + i < p_.lines;
        copyPieceAsync(to + (d * kLines + i) * kDepth,
                       there ? weights + i * p_.weights.pitch : p_.weights.data, there);
      }
    }
    const uint8_t *levels = p_.levels.data + row_ * p_.levels.pitch + k;
#pragma unroll
    for (int i = 0; i < kRows; i += kStep) {
      const bool there = isInput && row_ + i < p_.rows;
      copyPieceAsync(to + (kDigits * kLines + i) * kDepth,
                     there ? levels + i * p_.levels.pitch : p_.levels.data, there);
    }
  }

 private:
  static constexpr int kPieces = kDepth / 16;       // of a row
  static constexpr int kStep = kThreads / kPieces;  // rows between copies of a thread
  static_assert(kStep % 8 == 0 && kLines % kStep == 0 && kRows % kStep == 0,
                "a thread's pieces are permuted alike");

  const DigitProblem &p_;
  int first_;  // input of a thread's pieces in a stage
  int row_;    // of the first copy
  int line_;
  uint32_t to_;
};

#define PULSORA_SUMS_4(i) "+r"(d[i]), "+r"(d[(i) + 1]), "+r"(d[(i) + 2]), "+r"(d[(i) + 3])
#define PULSORA_SUMS_16(i) \
  PULSORA_SUMS_4(i), PULSORA_SUMS_4((i) + 4), PULSORA_SUMS_4((i) + 8), PULSORA_SUMS_4((i) + 12)
#define PULSORA_MULTIPLY(kType)                                                                    \
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k32.s32." kType ".s8 {" PULSORA_NAMES_128      \
               "}, %64, %65, 1;"                                                                   \
               : PULSORA_SUMS_16(0), PULSORA_SUMS_16(16), PULSORA_SUMS_16(32), PULSORA_SUMS_16(48) \
               : "l"(a), "l"(b))

/// d += a b for a warpgroup's 64 x 32 bytes, which have a sign if kSigned, and 32 x 128 levels.
template <bool kSigned>
__device__ inline void multiplyWide(int (&d)[kSumsOfDigit], uint64_t a, uint64_t b) {
  if constexpr (kSigned) {
    PULSORA_MULTIPLY("s8");
  } else {
    PULSORA_MULTIPLY("u8");
  }
}
#undef PULSORA_MULTIPLY
#undef PULSORA_SUMS_16
#undef PULSORA_SUMS_4

template <int kDigits, int kDigit = 0>
__device__ inline void multiplyDigits(int (&sums)[kDigits][kSumsOfDigit], uint32_t weights,
                                      uint64_t levels) {
  if constexpr (kDigit < kDigits) {
    multiplyWide<kDigit + 1 == kDigits>(
        sums[kDigit], describe(weights + kDigit * kLines * kDepth, Swizzle::k128Bytes), levels);
    multiplyDigits<kDigits, kDigit + 1>(sums, weights, levels);
  }
}

template <int kDigits>
__device__ inline int64_t totalOf(const int (&sums)[kDigits][kSumsOfDigit], int e) {
  int64_t total = 0;
#pragma unroll
  for (int d = 0; d < kDigits; ++d) total += static_cast<int64_t>(sums[d][e]) * (1 << 8 * d);
  return total;
}

/// blockIdx.x counts the blocks of samples first, then those of outputs.
template <int kDigits, int kJobs>
__global__ void __launch_bounds__(kThreads, 1)
    digitProductKernel(const __grid_constant__ Jobs<DigitProblem, kJobs> jobs) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char stages[];
  awaitEarlier();
  const DigitProblem &p = jobs.ofBlock();
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(stages));
  const int row0 = static_cast<int>(blockIdx.x) % p.rowBlocks * kRows;
  const int line0 = static_cast<int>(blockIdx.x) / p.rowBlocks * kLines;
  const int group = static_cast<int>(threadIdx.x) / 128;
  const int steps = (p.depth + kDepth - 1) / kDepth;
  const Loader<kDigits> loader(p, shared, row0, line0);
  const auto ask = [&](int step) {
    if (step < steps) loader.ask(step);
    endCopyGroup();  // also an empty group, so that groups can be counted
  };
  int sums[kDigits][kSumsOfDigit] = {};
#pragma unroll
  for (int step = 0; step < kStages - 2; ++step) ask(step);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    awaitCopies<kStages - 3>();
    publishShared();
    __syncthreads();  // also: all threads have finished the products of step - 2
    ask(step + kStages - 2);
    const uint32_t weights = shared + static_cast<uint32_t>(step % kStages) * kStageBytes<kDigits>;
    const uint32_t levels = weights + (kDigits * kLines + group * kRows / 2) * kDepth;
    beginProducts();
#pragma unroll
    for (int k = 0; k < kDepth; k += 32)
      multiplyDigits(sums, weights + k, describe(levels + k, Swizzle::k128Bytes));
    commitProducts();
    waitForProducts<1>();
  }
  waitForProducts<0>();
#pragma unroll
  for (int d = 0; d < kDigits; ++d) settle(sums[d]);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = row0 + group * kRows / 2 + lane % 4 * 2;
  const int line = line0 + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / 4;
#pragma unroll
  for (int e = 0; e < kSumsOfDigit; ++e) {
    const int r = row + e / 4 * 8 + e % 2;
    const int l = line + e / 2 % 2 * 8;
    if (r < p.rows && l < p.lines) p.sums[r * p.pitch + l] = valueOf(totalOf(sums, e), p.unit);
  }
#else
  __trap();  // never launched: only compute capability 9.0 has code
#endif
}

}  // namespace pulsora::digits
