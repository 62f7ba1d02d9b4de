#pragma once

#include <cuda_pipeline.h>

#include "cuda/batch_aside.cuh"
#include "cuda/pulsed_update.cuh"

// Updates with noise_merge = "batch": the steps are those of devices/batch_noise.h. What is left to
// do per sample is to count coincidences, and that is a matrix product: over all slots of the
// mini-batch, of the bits of x with those of d (pulses up and down together) and of the signed bits
// (down minus up).
//
//   tiled: large arrays; the tensor cores multiply bytes that are made of the bits in registers.
//
//   flat: everything else; a thread counts for one cell.

namespace RPU {
namespace gpu {

constexpr int kMergeThreads = 128;
constexpr int kMergeWarps = kMergeThreads / 32;
constexpr int kWarpRows = 32;
constexpr int kTileRows = kMergeWarps * kWarpRows;
constexpr int kTileCols = 32;
constexpr int kMergeBlocks = 4;  // of a processor: the compiler keeps to 128 registers for them
constexpr int kAtOnce = 4;       // cells whose state a thread reads before it goes on
constexpr int kStagedWords = 8;  // words of each line that are copied at a time

/// What is stored of one cell.
template <class Device>
struct CellState {
  float w;
  typename Array<Device>::Stored stored;
};

/// One cell at once. False if it must go sample by sample; its weight is then as it was.
template <class Device>
__device__ __forceinline__ bool mergeCell(const Array<Device> &a, int64_t index,
                                          const CellState<Device> &cell, int up, int down,
                                          float z) {
  bool holds = false;
  const float w = mergedPulses<Device>(cell.w, static_cast<float>(up), static_cast<float>(down),
                                       a.response(cell.stored), a.params, z, holds);
  if (holds) a.weights[index] = w;
  return holds;
}

/// Adds the threads' pulses to the ledger.
__device__ inline void addPulses(unsigned long long pulses, uint64_t *coincidences) {
  for (int step = 16; step > 0; step /= 2) pulses += __shfl_xor_sync(0xffffffffu, pulses, step);
  if ((threadIdx.x & 31) == 0 && pulses)
    atomicAdd(reinterpret_cast<unsigned long long *>(coincidences), pulses);
}

// --- flat
// -----------------------------------------------------------------------------------------------------------

struct CellCounts {
  int up;
  int down;
};

__device__ inline CellCounts countCell(const Samples &s, int64_t row, int64_t col) {
  const PulseWords &p = s.words;
  CellCounts c{};
  if (p.kind > PulseKind::TwoPass) {
    for (int64_t sample = 0; sample < s.count; ++sample) {
      const int n = signedCoincidences(p, s.layout, sample, row, col);
      c.up += ::max(n, 0);
      c.down += ::max(-n, 0);
    }
    return c;
  }
  const int64_t words = s.layout.words(s.count);
#pragma unroll 4
  for (int64_t word = 0; word < words; ++word) {
    const uint32_t both = slotsOfBoth(p, word, row, col);
    const uint32_t up = slotsUp(p, word, row, col);
    c.up += __popc(both & up);
    c.down += __popc(both & ~up);
  }
  return c;
}

template <class Device>
__global__ void __launch_bounds__(kMergeThreads)
    mergeFlatKernel(const __grid_constant__ Array<Device> a, const __grid_constant__ PulseWords p,
                    uint64_t *coincidences, uint32_t *late) {
  __shared__ uint16_t aside[kMergeThreads];
  __shared__ int asideCount;
  __shared__ uint32_t base;
  const BlockList list{aside, &asideCount};
  list.clear();
  __syncthreads();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kMergeThreads;
  const int64_t index = first + threadIdx.x;
  const Samples samples{p, *p.layout, p.sampleCount()};
  CellCounts c{};
  if (index < a.size()) {
    const int64_t row = index / a.cols;
    c = countCell(samples, row, index - row * a.cols);
    const float z = normalOfUpdate(a.rounds, static_cast<uint64_t>(index), p.firstSample);
    const CellState<Device> cell{a.weights[index], a.stored(index)};
    if (!mergeCell(a, index, cell, c.up, c.down, z)) list.add(static_cast<int>(threadIdx.x));
  }
  addPulses(static_cast<unsigned long long>(c.up) + static_cast<unsigned long long>(c.down),
            coincidences);
  list.append(late, base, [&](int cell) { return first + cell; });
}

// --- tiled
// ----------------------------------------------------------------------------------------------------------

/// One word of one line.
struct SignedWord {
  uint32_t bits;
  uint32_t signs;
};

struct CountTile {
  union {
    struct {  // two of each: one is filled while the other is used
      SignedWord d[2][kStagedWords][kTileRows];
      SignedWord x[2][kStagedWords][kTileCols];
    };
    struct {  // a part of each warp's cells: eight rows
      CellCounts counts[kMergeWarps][8][kTileCols];
      float z[kMergeWarps][8][kTileCols];
    };
  };
  uint16_t aside[kTileRows * kTileCols];  // row of the tile * kTileCols + column
  int asideCount;
};

/// Four bytes of 0 or 1: every eighth bit of a word, from that at `shift` on.
__device__ inline uint32_t spread(uint32_t bits, int shift) {
  return (bits >> shift) & 0x01010101u;
}

/// How bytes of 0 and 1 become bytes of 0 and +-1: of a word that belongs to one sample, and so has
/// one sign, by a factor of 1 or 255; of a word of several samples by adding 254 to those that are
/// negative.
template <bool kOneSample>
struct Signs {
  uint32_t value;

  __device__ explicit Signs(const SignedWord &word)
      : value(kOneSample ? (word.signs & 1u) * 254u + 1u : word.bits & word.signs) {}
  __device__ uint32_t apply(uint32_t bytes, int shift) const {
    return kOneSample ? bytes * value : bytes + 254u * spread(value, shift);
  }
};

/// c += a b for a [16, 32] and b [32, 8] of signed bytes, in the fragments of mma.m16n8k32.
__device__ inline void multiplyBytes(int (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();  // mergeUpdate() does not launch the kernel on such a card
#endif
}

/// The counts of a warp's 32 rows and kTileCols columns in the fragments of the products: entry c
/// of [m][n] is row 16 m + 8 (c / 2) + lane / 4, column 8 n + 2 (lane % 4) + c % 2.
struct WarpCounts {
  int total[2][kTileCols / 8][4] = {};
  int signedSum[2][kTileCols / 8][4] = {};

  /// Adds one word of every line. The order of its slots in the sum is free, so a thread takes
  /// those that need the fewest instructions: every eighth.
  template <bool kOneSample>
  __device__ __forceinline__ void add(const SignedWord *d, const SignedWord *x) {
    const int group = static_cast<int>(threadIdx.x & 31) >> 2;
    const int low = static_cast<int>(threadIdx.x & 3);
    const int high = low + 4;
    uint32_t a[2][4];
    uint32_t aSigned[2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const SignedWord word = d[8 * i + group];
      const int m = i >> 1;
      const int half = i & 1;
      a[m][half] = spread(word.bits, low);
      a[m][half + 2] = spread(word.bits, high);
      const Signs<kOneSample> signs(word);
      aSigned[m][half] = signs.apply(a[m][half], low);
      aSigned[m][half + 2] = signs.apply(a[m][half + 2], high);
    }
#pragma unroll
    for (int n = 0; n < kTileCols / 8; ++n) {
      const SignedWord word = x[8 * n + group];
      const uint32_t b[2] = {spread(word.bits, low), spread(word.bits, high)};
      const Signs<kOneSample> signs(word);
      const uint32_t bSigned[2] = {signs.apply(b[0], low), signs.apply(b[1], high)};
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        multiplyBytes(total[m][n], a[m], b);
        multiplyBytes(signedSum[m][n], aSigned[m], bSigned);
      }
    }
  }
};

/// Where a block's tile lies.
struct TilePlace {
  int64_t row;
  int64_t col;
};

/// Begins to copy `words` words of the lines from `line` on; zeros beyond the last line.
template <int kLines>
__device__ __forceinline__ void copyLines(SignedWord (&to)[kStagedWords][kLines],
                                          const uint32_t *bits, const uint32_t *signs,
                                          int64_t lines, int64_t line, int64_t firstWord,
                                          int words) {
  const int own = static_cast<int>(threadIdx.x) % kLines;
  const size_t zeros = line + own < lines ? 0 : sizeof(uint32_t);
  const int64_t base = firstWord * lines + (zeros == 0 ? line + own : 0);
  for (int word = static_cast<int>(threadIdx.x) / kLines; word < words;
       word += kMergeThreads / kLines) {
    SignedWord &staged = to[word][own];
    __pipeline_memcpy_async(&staged.bits, bits + base + word * lines, sizeof(uint32_t), zeros);
    __pipeline_memcpy_async(&staged.signs, signs + base + word * lines, sizeof(uint32_t), zeros);
  }
}

template <bool kOneSample>
__device__ __forceinline__ void countTile(const Samples &s, const TilePlace &place, CountTile &tile,
                                          WarpCounts &counts) {
  const PulseWords &p = s.words;
  const int warp = static_cast<int>(threadIdx.x >> 5);
  const int64_t words = s.layout.words(s.count);
  const auto wordsFrom = [&](int64_t first) {
    return static_cast<int>(words - first < kStagedWords ? words - first : kStagedWords);
  };
  const auto copyFrom = [&](int64_t first, int to) {
    if (first < words) {
      copyLines(tile.d[to], p.dBits, p.dSigns, p.dSize, place.row, first, wordsFrom(first));
      copyLines(tile.x[to], p.xBits, p.xSigns, p.xSize, place.col, first, wordsFrom(first));
    }
    __pipeline_commit();
  };
  copyFrom(0, 0);
  int use = 0;
  for (int64_t first = 0; first < words; first += kStagedWords, use ^= 1) {
    copyFrom(first + kStagedWords, use ^ 1);
    __pipeline_wait_prior(1);
    __syncthreads();
#pragma unroll 1
    for (int word = 0; word < wordsFrom(first); ++word)
      counts.add<kOneSample>(&tile.d[use][word][warp * kWarpRows], tile.x[use][word]);
    __syncthreads();
  }
}

/// Writes the counts of eight rows of a warp, those of fragment row `kPart`, for all its lanes.
template <int kPart>
__device__ __forceinline__ void storeCounts(const WarpCounts &counts,
                                            CellCounts (&to)[8][kTileCols]) {
  const int lane = static_cast<int>(threadIdx.x & 31);
#pragma unroll
  for (int n = 0; n < kTileCols / 8; ++n) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int total = counts.total[kPart / 2][n][2 * (kPart % 2) + side];
      const int sum = counts.signedSum[kPart / 2][n][2 * (kPart % 2) + side];
      to[lane >> 2][8 * n + 2 * (lane & 3) + side] = {(total - sum) >> 1, (total + sum) >> 1};
    }
  }
}

/// Normals for a warp's eight rows from `row` on. Where eight cells that share a draw lie in one
/// row, a thread draws for eight at a time.
template <class Device>
__device__ __forceinline__ void drawNormals(const Array<Device> &a, uint64_t firstSample,
                                            int64_t row, int64_t col, float (&z)[8][kTileCols]) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  if (a.cols % 8 != 0) {
#pragma unroll 1
    for (int i = lane; i < 8 * kTileCols; i += 32) {
      const int64_t cell = (row + i / kTileCols) * a.cols + col + i % kTileCols;
      z[i / kTileCols][i % kTileCols] =
          normalOfUpdate(a.rounds, static_cast<uint64_t>(cell), firstSample);
    }
    return;
  }
#pragma unroll 1
  for (int i = lane; i < kTileCols; i += 32) {
    const int r = i / (kTileCols / 8);
    const int c = i % (kTileCols / 8) * 8;
    const auto cell = static_cast<uint64_t>((row + r) * a.cols + col + c);
    const Normal8 normals = normal8(drawOfUpdate(a.rounds, cell >> 3, firstSample));
#pragma unroll
    for (int k = 0; k < 8; ++k) z[r][c + k] = normals.z[k];
  }
}

/// Applies the counts of a warp, eight rows at a time, with neighbouring cells in neighbouring
/// lanes.
template <class Device>
__device__ __forceinline__ void mergeTile(const Array<Device> &a, uint64_t firstSample,
                                          const TilePlace &place, CountTile &tile,
                                          const WarpCounts &counts, const BlockList &list) {
  const int warp = static_cast<int>(threadIdx.x >> 5);
  const int lane = static_cast<int>(threadIdx.x & 31);
#pragma unroll 1
  for (int part = 0; part < kWarpRows / 8; ++part) {
    __syncwarp();
    switch (part) {  // registers have no index at run time
      case 0:
        storeCounts<0>(counts, tile.counts[warp]);
        break;
      case 1:
        storeCounts<1>(counts, tile.counts[warp]);
        break;
      case 2:
        storeCounts<2>(counts, tile.counts[warp]);
        break;
      default:
        storeCounts<3>(counts, tile.counts[warp]);
    }
    const int partRow = warp * kWarpRows + 8 * part;
    drawNormals(a, firstSample, place.row + partRow, place.col, tile.z[warp]);
    __syncwarp();
#pragma unroll 1
    for (int first = lane; first < 8 * kTileCols; first += 32 * kAtOnce) {
      CellState<Device> cells[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int64_t row = place.row + partRow + (first + 32 * k) / kTileCols;
        const int64_t col = place.col + (first + 32 * k) % kTileCols;
        const int64_t index = row * a.cols + col;
        if (row < a.rows && col < a.cols) cells[k] = {a.weights[index], a.stored(index)};
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int r = (first + 32 * k) / kTileCols;
        const int c = (first + 32 * k) % kTileCols;
        const int64_t row = place.row + partRow + r;
        if (row >= a.rows || place.col + c >= a.cols) continue;
        const CellCounts n = tile.counts[warp][r][c];
        if (!mergeCell(a, row * a.cols + place.col + c, cells[k], n.up, n.down,
                       tile.z[warp][r][c])) {
          list.add((partRow + r) * kTileCols + c);
        }
      }
    }
  }
}

/// Asks for what is stored of the cells of a tile, so that it is in the cache when pulses are
/// counted.
template <class Device>
__device__ __forceinline__ void prefetchTile(const Array<Device> &a, const TilePlace &place) {
  const int64_t row = place.row + threadIdx.x;
  static_assert(kTileRows == kMergeThreads, "a thread asks for one row");
  if (row >= a.rows) return;
  const int64_t index = row * a.cols + place.col;
  const auto ask = [](const void *address) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
  };
  for (int c = 0; c < kTileCols && place.col + c < a.cols; c += 32) ask(a.weights + index + c);
#pragma unroll
  for (int m = 0; m < Array<Device>::kMembers; ++m) ask(a.cells + m * a.size() + index);
}

template <class Device>
__global__ void __launch_bounds__(kMergeThreads, kMergeBlocks)
    mergeTilesKernel(const __grid_constant__ Array<Device> a, const __grid_constant__ PulseWords p,
                     uint64_t *coincidences, uint32_t *late) {
  __shared__ CountTile tile;
  __shared__ uint32_t base;
  const BlockList list{tile.aside, &tile.asideCount};
  list.clear();
  const auto across = static_cast<unsigned>((a.cols + kTileCols - 1) / kTileCols);
  const TilePlace place = {int64_t{blockIdx.x / across} * kTileRows,
                           int64_t{blockIdx.x % across} * kTileCols};
  prefetchTile(a, place);
  const Samples samples{p, *p.layout, p.sampleCount()};
  WarpCounts counts;
  if (samples.layout.samplesPerWord == 1) {
    countTile<true>(samples, place, tile, counts);
  } else {
    countTile<false>(samples, place, tile, counts);
  }
  unsigned long long pulses = 0;
#pragma unroll
  for (int i = 0; i < kTileCols; ++i) {  // 32 rows of a warp are one cell of each column a lane
    pulses +=
        static_cast<unsigned>(counts.total[i / (kTileCols / 2)][i / 4 % (kTileCols / 8)][i % 4]);
  }
  addPulses(pulses, coincidences);
  __syncthreads();
  mergeTile(a, p.firstSample, place, tile, counts, list);
  list.append(late, base, [&](int cell) {
    return (place.row + cell / kTileCols) * a.cols + place.col + cell % kTileCols;
  });
}

// --- launch
// ---------------------------------------------------------------------------------------------------------

inline bool multipliesBytes() {
  int device = 0;
  int major = 0;
  RPU_CUDA(cudaGetDevice(&device));
  RPU_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return major >= 8;
}

/// The `update` of a model's kernels: at once if the array asks for it.
template <class Device>
void mergeOrUpdate(const CellArray &array, const PulseWords &words, uint64_t *coincidences,
                   int64_t begin, int64_t end, void *stream) {
  const Array<Device> a = Array<Device>::of(array);
  if (a.params.noise_merge != NoiseMerge::Batch)
    return update<Device>(array, words, coincidences, begin, end, stream);
  constexpr int64_t kManyCells = int64_t{1} << 20;  // enough tiles to keep the card busy
  constexpr int64_t kLateBlocks = 528;              // four of each processor of the largest cards
  const auto on = static_cast<cudaStream_t>(stream);
  RPU_CUDA(cudaMemsetAsync(array.late, 0, sizeof(uint32_t), on));
  if (words.kind == PulseKind::Words && array.size() >= kManyCells && array.rows >= kTileRows &&
      array.cols >= kTileCols && multipliesBytes()) {
    const int64_t tiles =
        (array.rows + kTileRows - 1) / kTileRows * ((array.cols + kTileCols - 1) / kTileCols);
    mergeTilesKernel<Device><<<static_cast<unsigned>(tiles), kMergeThreads, 0, on>>>(
        a, words, coincidences, array.late);
  } else {
    const int64_t blocks = (array.size() + kMergeThreads - 1) / kMergeThreads;
    mergeFlatKernel<Device><<<static_cast<unsigned>(blocks), kMergeThreads, 0, on>>>(
        a, words, coincidences, array.late);
  }
  RPU_CUDA(cudaGetLastError());
  const int64_t most = (array.size() + kLateThreads - 1) / kLateThreads;
  lateCellsKernel<Device>
      <<<static_cast<unsigned>(most < kLateBlocks ? most : kLateBlocks), kLateThreads, 0, on>>>(
          a, words, array.late);
  RPU_CUDA(cudaGetLastError());
}

}  // namespace gpu
}  // namespace RPU
