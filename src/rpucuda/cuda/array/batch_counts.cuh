#pragma once

#include "cuda/array/deferred_cells.cuh"
#include "cuda/core/async_copy.cuh"

// The pulses of a mini-batch for a tile of cells. Over all slots, the pulses in either direction
// are the product of the bit matrices of d and x, in which "and" multiplies bits and a sum counts;
// the pulses down are the sum of two such products: positive with positive and negative with
// negative lines. Tensor cores multiply the bits as they lie in the words.

namespace pulsora {
namespace gpu {

constexpr int kMergeWarps = kMergeThreads / 32;
constexpr int kWarpRows = 16;
static_assert(kTileRows == kMergeWarps * kWarpRows, "warps share the rows of a tile");
constexpr int kStagedWords = 8;  // words of each line that are copied, and multiplied, at a time
constexpr int kPaddedLines = 4;  // so that the lanes of a warp read from different banks

struct CellCounts {
  int up;
  int down;
};

/// One word of one line.
struct SignedWord {
  uint32_t bits;
  uint32_t signs;
};

struct CountTile {
  union {
    struct {  // two of each: one is filled while the other is used
      SignedWord d[2][kStagedWords][kTileRows + kPaddedLines];
      SignedWord x[2][kStagedWords][kTileCols + kPaddedLines];
    };
    alignas(16) CellCounts counts[kMergeWarps][kWarpRows][kTileCols];
  };
  alignas(16) float z[kMergeWarps][8][kTileCols];  // eight rows of each warp at a time
  uint16_t deferred[kTileRows * kTileCols];        // row of the tile * kTileCols + column
  int deferredCount;
};

/// Adds to c the number of bits that are set in both a [16, 256] and b [256, 8], in the fragments
/// of mma.m16n8k256.
__device__ inline void countBits(int (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();  // mergeOrUpdate() does not launch the kernel on such a card
#endif
}

/// The counts of a warp's kWarpRows rows and kTileCols columns in the fragments of the products:
/// entry c of [m][n] is row 16 m + 8 (c / 2) + lane / 4, column 8 n + 2 (lane % 4) + c % 2.
struct WarpCounts {
  int total[kWarpRows / 16][kTileCols / 8][4] = {};
  int down[kWarpRows / 16][kTileCols / 8][4] = {};

  /// Adds kStagedWords words of every line; a lane takes words lane % 4 and lane % 4 + 4.
  __device__ __forceinline__ void add(const SignedWord (&d)[kStagedWords][kTileRows + kPaddedLines],
                                      const SignedWord (&x)[kStagedWords][kTileCols + kPaddedLines],
                                      int firstRow) {
    static_assert(kStagedWords == 8, "256 bits at a time");
    const int group = static_cast<int>(threadIdx.x & 31) >> 2;
    const int word = static_cast<int>(threadIdx.x & 3);
    uint32_t a[kWarpRows / 16][4];
    uint32_t aPositive[kWarpRows / 16][4];
    uint32_t aNegative[kWarpRows / 16][4];
#pragma unroll
    for (int i = 0; i < kWarpRows / 4; ++i) {
      const int m = i >> 2;
      const SignedWord line = d[word + (i & 2) * 2][firstRow + 16 * m + (i & 1) * 8 + group];
      a[m][i & 3] = line.bits;
      aPositive[m][i & 3] = line.bits & ~line.signs;
      aNegative[m][i & 3] = line.bits & line.signs;
    }
#pragma unroll
    for (int n = 0; n < kTileCols / 8; ++n) {
      const SignedWord low = x[word][8 * n + group];
      const SignedWord high = x[word + 4][8 * n + group];
      const uint32_t b[2] = {low.bits, high.bits};
      const uint32_t bPositive[2] = {low.bits & ~low.signs, high.bits & ~high.signs};
      const uint32_t bNegative[2] = {low.bits & low.signs, high.bits & high.signs};
#pragma unroll
      for (int m = 0; m < kWarpRows / 16; ++m) {
        countBits(total[m][n], a[m], b);
        countBits(down[m][n], aPositive[m], bPositive);
        countBits(down[m][n], aNegative[m], bNegative);
      }
    }
  }
};

/// Position of a block's tile.
struct TilePlace {
  int64_t row;
  int64_t col;
};

/// Begins to copy kStagedWords words of the lines from `line` on; zeros beyond the last word and
/// beyond the last line.
template <int kLines>
__device__ __forceinline__ void copyLines(SignedWord (&to)[kStagedWords][kLines + kPaddedLines],
                                          const uint32_t *bits, const uint32_t *signs,
                                          int64_t lines, int64_t line, int64_t firstWord,
                                          int64_t words) {
  const int own = static_cast<int>(threadIdx.x) % kLines;
  const bool there = line + own < lines;
  static_assert(kStagedWords * kLines % kMergeThreads == 0, "no thread is left over");
#pragma unroll
  for (int i = 0; i < kStagedWords * kLines / kMergeThreads; ++i) {
    const int word = static_cast<int>(threadIdx.x) / kLines + i * (kMergeThreads / kLines);
    const bool copied = there && firstWord + word < words;
    const int64_t from = copied ? (firstWord + word) * lines + line + own : 0;
    SignedWord &staged = to[word][own];
    copyWordAsync(&staged.bits, bits + from, copied);
    copyWordAsync(&staged.signs, signs + from, copied);
  }
}

__device__ __forceinline__ void countTile(const Samples &s, const TilePlace &place, CountTile &tile,
                                          WarpCounts &counts) {
  const PulseWords &p = s.words;
  const int firstRow = static_cast<int>(threadIdx.x >> 5) * kWarpRows;
  const int64_t words = s.layout.words(s.count);
  const auto copyFrom = [&](int64_t first, int to) {
    if (first < words) {
      copyLines<kTileRows>(tile.d[to], p.dBits, p.dSigns, p.dSize, place.row, first, words);
      copyLines<kTileCols>(tile.x[to], p.xBits, p.xSigns, p.xSize, place.col, first, words);
    }
    endCopyGroup();
  };
  copyFrom(0, 0);
  int use = 0;
#pragma unroll 1
  for (int64_t first = 0; first < words; first += kStagedWords, use ^= 1) {
    copyFrom(first + kStagedWords, use ^ 1);
    awaitCopies<1>();
    __syncthreads();
    counts.add(tile.d[use], tile.x[use], firstRow);
    __syncthreads();
  }
}

/// Writes a warp's counts for all its lanes, which frees the registers.
__device__ __forceinline__ void storeCounts(const WarpCounts &counts,
                                            CellCounts (&to)[kWarpRows][kTileCols]) {
  const int lane = static_cast<int>(threadIdx.x & 31);
#pragma unroll
  for (int part = 0; part < kWarpRows / 8; ++part) {
#pragma unroll
    for (int n = 0; n < kTileCols / 8; ++n) {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const int total = counts.total[part / 2][n][2 * (part % 2) + side];
        const int down = counts.down[part / 2][n][2 * (part % 2) + side];
        to[8 * part + (lane >> 2)][8 * n + 2 * (lane & 3) + side] = {total - down, down};
      }
    }
  }
}

}  // namespace gpu
}  // namespace pulsora
