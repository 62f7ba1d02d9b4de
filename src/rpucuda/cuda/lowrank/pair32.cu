#include <algorithm>

#include "core/buffer.h"
#include "cuda/core/async_copy.cuh"
#include "cuda/core/launch.cuh"
#include "cuda/core/tensor_floats.cuh"
#include "cuda/lowrank/fragments.cuh"
#include "lowrank/kernels.h"

// The gradients of an adapter C = A B in single precision, da = dc b^T and db = a^T dc, or one of
// them, in one pass over dc. A block takes tile after tile of 16 rows of a group of columns, and a
// warp takes a slab of these columns, for all K or a part of K. The sums of db stay in registers;
// the sums of da are short, and added over the warps in shared memory. A second kernel adds the
// blocks' parts in a fixed order. In both products, K is the rows of the tensor cores' results, and
// dc the right factor: the rows of dc are columns of one product and terms of the other.

namespace pulsora {
namespace {

using lowrank::kTileRows;

constexpr int kWarps = 16;
constexpr int kThreads = 32 * kWarps;
constexpr int kRanks = 16;  // K of a product of the tensor cores
constexpr int kSumWarps = 8;
constexpr int kStep = 8;   // columns or rows of a product of the tensor cores
constexpr int kShort = 4;  // steps summed inside the tensor cores

struct Pair32 {
  MatrixView<const float> dc, a, b;
  AdapterGradient toA, toB;  // without data where not wanted
  int m = 0, n = 0, k = 0;
  int groups = 0, chunks = 0;
  float *da = nullptr;  // [groups, m, K]; null for a single group, which writes the result itself
  float *db = nullptr;  // [chunks, K, n]
};

__device__ inline void store(const AdapterGradient &to, int64_t i, int64_t j, float sum) {
  float &value = to.to(i, j);
  value = to.accumulates ? value + sum : sum;
}

/// Numbers, each as the sum of two for the tensor cores.
template <int kCount>
struct Split {
  uint32_t big[kCount], rest[kCount];
};

__device__ inline Split<2> split(float x, float y) {
  Split<2> of;
  splitValue(x, of.big[0], of.rest[0]);
  splitValue(y, of.big[1], of.rest[1]);
  return of;
}

/// Left factors of products, in the order in which lanes hold them: four numbers of each lane side
/// by side. With kSplits, split once when they are put; that takes twice the memory.
template <int kTiles, bool kSplits>
struct LeftFactors {
  float4 values[kSplits ? 2 : 1][kTiles][32];

  /// Puts place 0 to 3 of a lane's numbers.
  __device__ void put(int tile, int lane, int place, float value) {
    float *const to = &values[0][tile][lane].x + place;
    if constexpr (kSplits) {
      uint32_t big, rest;
      splitValue(value, big, rest);
      *to = __uint_as_float(big);
      *(to + kTiles * 32 * 4) = __uint_as_float(rest);
    } else {
      *to = value;
    }
  }
  __device__ Split<4> at(int tile, int lane) const {
    const float4 v = values[0][tile][lane];
    const float each[4] = {v.x, v.y, v.z, v.w};
    Split<4> of;
    if constexpr (kSplits) {
      const float4 r = values[1][tile][lane];
      const float rests[4] = {r.x, r.y, r.z, r.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        of.big[i] = __float_as_uint(each[i]);
        of.rest[i] = __float_as_uint(rests[i]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) splitValue(each[i], of.big[i], of.rest[i]);
    }
    return of;
  }
};

/// How a block shares its columns and K: a warp has kSlab columns and kDepth times 16 of K, and
/// kAlong warps share a slab.
template <int kSlabColumns, int kDepthTiles, int kAlongWarps>
struct Shape {
  static constexpr int kSlab = kSlabColumns, kDepth = kDepthTiles, kAlong = kAlongWarps;
  static constexpr int kSlabs = kWarps / kAlong;
  static constexpr int kColumns = kSlabs * kSlab;
  static constexpr int kTilesOfK = kDepth * kAlong;
  static constexpr int kRank = kRanks * kTilesOfK;
  static constexpr int kSteps = kColumns / kStep;
};

/// Tiles of dc, the factors, and the warps' parts of da, in shared memory. Rows are padded, so that
/// neither pairs along rows nor single numbers across rows conflict in a bank.
template <class S>
struct Memory {
  float tile[2][kTileRows][S::kColumns + 8];
  LeftFactors<S::kTilesOfK * S::kSteps, S::kColumns <= 256> b;
  LeftFactors<S::kTilesOfK * 2, true> a[2];
  float parts[S::kSlabs][kTileRows][S::kRank + 4];
};

/// d[i] += a b[i].
__device__ inline void multiply(float (&d)[2][4], const Split<4> &a, const Split<2> (&b)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) multiplyTile(d[i], a.rest, b[i].big);
#pragma unroll
  for (int i = 0; i < 2; ++i) multiplyTile(d[i], a.big, b[i].rest);
#pragma unroll
  for (int i = 0; i < 2; ++i) multiplyTile(d[i], a.big, b[i].big);
}

/// d += a b.
__device__ inline void multiply(float (&d)[4], const Split<4> &a, const Split<2> &b) {
  multiplyTile(d, a.rest, b.big);
  multiplyTile(d, a.big, b.rest);
  multiplyTile(d, a.big, b.big);
}

template <class S>
__global__ void __launch_bounds__(kThreads, 1) pairKernel(const __grid_constant__ Pair32 p) {
  constexpr int kColumns = S::kColumns, kRank = S::kRank, kSlab = S::kSlab, kDepth = S::kDepth;
  extern __shared__ __align__(128) char bytes[];
  Memory<S> &shared = *reinterpret_cast<Memory<S> *>(bytes);
  const int me = static_cast<int>(threadIdx.x);
  const int lane = me % 32, warp = me / 32;
  const int g = lane / 4, t = lane % 4;
  const int group = static_cast<int>(blockIdx.x) % p.groups;
  const int chunk = static_cast<int>(blockIdx.x) / p.groups;
  const int col0 = group * kColumns;
  const int tiles = (p.m + kTileRows - 1) / kTileRows;
  const bool wantsA = p.toA.to.data != nullptr, wantsB = p.toB.to.data != nullptr;
  // A thread copies these columns of every kRowsAtOnce-th row of a tile.
  constexpr int kPieces = kColumns / 4, kRowsAtOnce = kThreads / kPieces;
  const int pieceRow = me / kPieces, pieceCol = me % kPieces * 4;
  const bool hasColumns = col0 + pieceCol < p.n && pieceRow < kTileRows;
  const float *const piece = p.dc.data + pieceRow * p.dc.rowStride + col0 + pieceCol;
  const auto load = [&](int tile, int stage) {
    const float *const from = piece + int64_t{tile} * kTileRows * p.dc.rowStride;
    float *const to = &shared.tile[stage][pieceRow % kTileRows][pieceCol];
#pragma unroll
    for (int i = 0; i < kTileRows; i += kRowsAtOnce) {
      const bool isThere = hasColumns && tile * kTileRows + pieceRow + i < p.m;
      if (kRowsAtOnce > kTileRows && pieceRow >= kTileRows) continue;
      copyPieceAsync(static_cast<uint32_t>(__cvta_generic_to_shared(to + i * (kColumns + 8))),
                     isThere ? from + i * p.dc.rowStride : p.dc.data, isThere);
    }
  };
  // A thread has these elements of a tile of a, and of a tile's result da.
  constexpr int kElements = kTileRows * kRank;
  constexpr int kMine = (kElements + kThreads - 1) / kThreads;
  static_assert(kElements % kThreads == 0 || kMine == 1);
  const bool hasElements = me < kElements;
  const int myRow = me / kRank, myK = me % kRank;
  constexpr int kRowsApart = kThreads / kRank;  // of a thread's elements, which share myK
  float ofA[kMine];
  const auto loadA = [&](int tile) {
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const int row = tile * kTileRows + myRow + i * kRowsApart;
      ofA[i] = wantsB && hasElements && myK < p.k && row < p.m ? p.a(row, myK) : 0.0f;
    }
  };
  const auto storeA = [&](int stage) {
    if (!hasElements) return;
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      // Rows of a are columns of the left factor, in two steps of eight.
      const int row = myRow + i * kRowsApart;
      shared.a[stage].put(myK / kRanks * 2 + row / kStep, myK % 8 * 4 + row % 4,
                          myK % kRanks / 8 + row % kStep / 4 * 2, ofA[i]);
    }
  };
  awaitEarlier();
  int tile = chunk;
  if (tile < tiles) load(tile, 0);
  endCopyGroup();
  loadA(tile);
  if (wantsA) {
    for (int i = me; i < kRank * kColumns; i += kThreads) {
      const int k = i / kColumns, col = i % kColumns;
      // A lane has columns 2 t and 2 t + 1 of a step, as the right factor has them.
      shared.b.put(k / kRanks * S::kSteps + col / kStep, k % 8 * 4 + col % kStep / 2,
                   k % kRanks / 8 + col % 2 * 2,
                   k < p.k && col0 + col < p.n ? p.b(k, col0 + col) : 0.0f);
    }
  }
  storeA(0);
  const int part = warp / S::kAlong, slab = part * kSlab;
  const int tile0 = warp % S::kAlong * kDepth, k0 = tile0 * kRanks;  // of K
  float sumB[kDepth][kSlab / kStep][4] = {};
  for (int stage = 0; tile < tiles; tile += p.chunks, stage ^= 1) {
    if (tile + p.chunks < tiles) load(tile + p.chunks, stage ^ 1);
    endCopyGroup();
    loadA(tile + p.chunks);
    awaitCopies<1>();
    __syncthreads();
    const auto &rows = shared.tile[stage];
    if (wantsA) {
      float sumA[kDepth][2][4] = {};  // da of 16 rows, transposed
#pragma unroll
      for (int first = 0; first < kSlab; first += kShort * kStep) {
        float sums[kDepth][2][4] = {};
#pragma unroll
        for (int s = 0; s < kShort; ++s) {
          const int col = slab + first + s * kStep + 2 * t;
          if (first + s * kStep >= kSlab) break;
          const float2 d0 = *reinterpret_cast<const float2 *>(&rows[g][col]);
          const float2 d1 = *reinterpret_cast<const float2 *>(&rows[g + 8][col]);
          const Split<2> right[2] = {split(d0.x, d0.y), split(d1.x, d1.y)};
#pragma unroll
          for (int d = 0; d < kDepth; ++d) {
            const int step = (slab + first) / kStep + s;
            multiply(sums[d], shared.b.at((tile0 + d) * S::kSteps + step, lane), right);
          }
        }
#pragma unroll
        for (int e = 0; e < kDepth * 8; ++e)
          sumA[e / 8][e / 4 % 2][e % 4] += sums[e / 8][e / 4 % 2][e % 4];
      }
#pragma unroll
      for (int e = 0; e < kDepth * 8; ++e) {
        const int row = 8 * (e / 4 % 2) + 2 * t + e % 2;
        shared.parts[part][row][k0 + e / 8 * kRanks + g + e % 4 / 2 * 8] =
            sumA[e / 8][e / 4 % 2][e % 4];
      }
    }
    if (wantsB) {
      float sums[kDepth][kSlab / kStep][4] = {};
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        // a is the left factor: columns of a are rows of the results.
        Split<4> left[kDepth];
#pragma unroll
        for (int d = 0; d < kDepth; ++d) left[d] = shared.a[stage].at((tile0 + d) * 2 + s, lane);
#pragma unroll
        for (int c = 0; c < kSlab / kStep; ++c) {
          const int col = slab + c * kStep + g;
          const Split<2> right = split(rows[s * kStep + t][col], rows[s * kStep + t + 4][col]);
#pragma unroll
          for (int d = 0; d < kDepth; ++d) multiply(sums[d][c], left[d], right);
        }
      }
#pragma unroll
      for (int e = 0; e < kDepth * kSlab / 2; ++e) {
        constexpr int kOfTile = kSlab / 2;
        sumB[e / kOfTile][e % kOfTile / 4][e % 4] += sums[e / kOfTile][e % kOfTile / 4][e % 4];
      }
    }
    storeA(stage ^ 1);
    __syncthreads();
    if (wantsA && hasElements && myK < p.k) {
#pragma unroll
      for (int i = 0; i < kMine; ++i) {
        const int row = myRow + i * kRowsApart;
        const int64_t at = int64_t{tile} * kTileRows + row;
        if (at >= p.m) continue;
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < S::kSlabs; ++w) sum += shared.parts[w][row][myK];
        if (p.da) {
          p.da[(int64_t{group} * p.m + at) * p.k + myK] = sum;
        } else {
          store(p.toA, at, myK, sum);
        }
      }
    }
    // The next round's barrier ends these reads before the next parts are written. The next round's
    // copies overwrite this tile, which no warp reads after the barrier above.
  }
  letNextBegin();
  if (!wantsB) return;
#pragma unroll
  for (int d = 0; d < kDepth; ++d) {
#pragma unroll
    for (int c = 0; c < kSlab / kStep; ++c) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int k = k0 + d * kRanks + g + 8 * half, col = col0 + slab + c * kStep + 2 * t;
        if (k >= p.k || col >= p.n) continue;
        // n is a multiple of four, so the next column exists, and pairs are aligned.
        *reinterpret_cast<float2 *>(p.db + (int64_t{chunk} * p.k + k) * p.n + col) =
            make_float2(sumB[d][c][2 * half], sumB[d][c][2 * half + 1]);
      }
    }
  }
}

/// Adds the parts of db, eight warps taking every eighth part each, and the parts of da of several
/// groups.
__global__ void __launch_bounds__(32 * kSumWarps) sumPairKernel(const __grid_constant__ Pair32 p) {
  awaitEarlier();
  __shared__ float shared[32 * kSumWarps];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t sizeOfB = p.db ? int64_t{p.k} * p.n : 0, sizeOfA = p.da ? int64_t{p.m} * p.k : 0;
  const int64_t blocksOfB = (sizeOfB + 31) / 32;
  const bool ofB = blockIdx.x < blocksOfB;
  const int64_t size = ofB ? sizeOfB : sizeOfA;
  const int64_t e = (ofB ? blockIdx.x : blockIdx.x - blocksOfB) * 32 + lane;
  const float *from = ofB ? p.db : p.da;
  const int count = ofB ? p.chunks : p.groups;
  float sum = 0.0f;
  if (e < size) {
#pragma unroll 8
    for (int i = warp; i < count; i += kSumWarps) sum += from[i * size + e];
  }
  shared[threadIdx.x] = sum;
  __syncthreads();
  if (warp != 0 || e >= size) return;
  for (int other = 1; other < kSumWarps; ++other) sum += shared[other * 32 + lane];
  const int columns = ofB ? p.n : p.k;
  store(ofB ? p.toB : p.toA, e / columns, e % columns, sum);
}

template <class S>
void launchPair(const Context &context, Pair32 &p, int processors) {
  const int tiles = (p.m + kTileRows - 1) / kTileRows;
  p.groups = (p.n + S::kColumns - 1) / S::kColumns;
  p.chunks = pulsora::max(pulsora::min(tiles, processors / p.groups), 1);
  const int64_t ofA = p.toA.to.data && p.groups > 1 ? int64_t{p.m} * p.k : 0;
  const int64_t ofB = p.toB.to.data ? int64_t{p.k} * p.n : 0;
  Buffer<float> da(context, p.groups * ofA), db(context, p.chunks * ofB);
  p.da = ofA > 0 ? da.data() : nullptr;
  p.db = ofB > 0 ? db.data() : nullptr;
  PULSORA_CUDA_CHECK(cudaFuncSetAttribute(
      pairKernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Memory<S>)));
  launch(context.stream, pairKernel<S>, static_cast<unsigned>(p.groups * p.chunks), kThreads,
         sizeof(Memory<S>), p);
  const auto blocks = static_cast<unsigned>((ofB + 31) / 32 + (ofA + 31) / 32);
  if (blocks > 0) launch(context.stream, sumPairKernel, blocks, 32 * kSumWarps, 0, p);
}

}  // namespace

bool cudaAdapterGradients(const Context &context, MatrixView<const float> dc,
                          MatrixView<const float> a, MatrixView<const float> b,
                          const AdapterGradient &da, const AdapterGradient &db) {
  // With fewer terms, the error of leaving out the smallest of the four products of halves would
  // show.
  constexpr int64_t kLeastRows = 64, kLeastColumns = 128;
  // Few columns for a warp, where blocks are few; else as many as shared memory holds.
  using Few = Shape<8, 1, 1>;
  using FewDeep = Shape<8, 2, 2>;
  using Many = Shape<64, 1, 1>;
  if (dc.rows < kLeastRows || dc.cols < kLeastColumns || a.cols < 1 || a.cols > FewDeep::kRank ||
      !lowrank::hasPieces(dc) || !lowrank::isCountable(dc.rows) ||
      !lowrank::isCountable(dc.cols * FewDeep::kRank) ||
      context.gpuProducts == GpuProducts::Reproducible)
    return false;
  const CudaScope scope(context.device);
  const lowrank::GpuFacts gpu = lowrank::factsOf(context.device);
  constexpr size_t kMostBytes =
      std::max({sizeof(Memory<Few>), sizeof(Memory<FewDeep>), sizeof(Memory<Many>)});
  if (gpu.capability < 90 || sharedBytesOf(context.device) < kMostBytes) return false;
  Pair32 p{dc, a, b, da, db};
  p.m = static_cast<int>(dc.rows);
  p.n = static_cast<int>(dc.cols);
  p.k = static_cast<int>(a.cols);
  const int64_t tiles = (dc.rows + kTileRows - 1) / kTileRows;
  const auto groups = [&](int columns) { return (dc.cols + columns - 1) / columns; };
  if (p.k > Few::kRank) {
    // With more tiles, cuBLAS is faster.
    if (tiles * groups(FewDeep::kColumns) > gpu.processors) return false;
    launchPair<FewDeep>(context, p, gpu.processors);
  } else if (tiles * groups(Many::kColumns) < gpu.processors) {
    launchPair<Few>(context, p, gpu.processors);
  } else {
    launchPair<Many>(context, p, gpu.processors);
  }
  return true;
}

}  // namespace pulsora
