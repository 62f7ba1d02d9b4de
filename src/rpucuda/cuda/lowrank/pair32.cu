#include "core/buffer.h"
#include "cuda/core/async_copy.cuh"
#include "cuda/core/tensor_floats.cuh"
#include "cuda/lowrank/fragments.cuh"
#include "lowrank/kernels.h"

// The gradients of an adapter C = A B in single precision, da = dc b^T and db = a^T dc, or one of
// them, in one pass over dc. A block takes tile after tile of 16 rows of a group of columns, and a
// warp takes a slab of these columns. The sums of db stay in registers; the sums of da are short,
// and added over the warps in shared memory. A second kernel adds the blocks' parts in a fixed
// order. In both products, K is the 16 rows of the tensor cores' results, and dc the right factor:
// the rows of dc are columns of one product and terms of the other.

namespace pulsora {
namespace {

using lowrank::kTileRows;

constexpr int kWarps = 16;
constexpr int kThreads = 32 * kWarps;
constexpr int kRank = 16;
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

/// Tiles of dc and a, b, and the warps' parts of da, in shared memory. Rows are padded, so that
/// neither pairs along rows nor single floats across rows conflict in a bank.
template <int kSlab>
struct Memory {
  static constexpr int kColumns = kWarps * kSlab;
  static constexpr int kPitch = kColumns + 8;
  float tile[2][kTileRows][kPitch];
  float a[2][kTileRows][kRank + 8];
  float b[kRank][kPitch];
  float parts[kWarps][kTileRows][kRank + 4];
};

struct Split4 {
  uint32_t big[4], rest[4];
  __device__ Split4(float a0, float a1, float a2, float a3) {
    splitValue(a0, big[0], rest[0]);
    splitValue(a1, big[1], rest[1]);
    splitValue(a2, big[2], rest[2]);
    splitValue(a3, big[3], rest[3]);
  }
};

struct Split2 {
  uint32_t big[2], rest[2];
  __device__ Split2(float x, float y) {
    splitValue(x, big[0], rest[0]);
    splitValue(y, big[1], rest[1]);
  }
};

/// d[i] += a b[i].
__device__ inline void multiply(float (&d)[2][4], const Split4 &a, const Split2 (&b)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) multiplyTile(d[i], a.rest, b[i].big);
#pragma unroll
  for (int i = 0; i < 2; ++i) multiplyTile(d[i], a.big, b[i].rest);
#pragma unroll
  for (int i = 0; i < 2; ++i) multiplyTile(d[i], a.big, b[i].big);
}

/// d += a b.
__device__ inline void multiply(float (&d)[4], const Split4 &a, const Split2 &b) {
  multiplyTile(d, a.rest, b.big);
  multiplyTile(d, a.big, b.rest);
  multiplyTile(d, a.big, b.big);
}

template <int kSlab>
__global__ void __launch_bounds__(kThreads, 1) pairKernel(const __grid_constant__ Pair32 p) {
  using Shared = Memory<kSlab>;
  constexpr int kColumns = Shared::kColumns;
  extern __shared__ __align__(128) char bytes[];
  Shared &shared = *reinterpret_cast<Shared *>(bytes);
  const int me = static_cast<int>(threadIdx.x);
  const int lane = me % 32, warp = me / 32;
  const int g = lane / 4, t = lane % 4;
  const int group = static_cast<int>(blockIdx.x) % p.groups;
  const int chunk = static_cast<int>(blockIdx.x) / p.groups;
  const int col0 = group * kColumns;
  const int tiles = (p.m + kTileRows - 1) / kTileRows;
  const bool wantsA = p.toA.to.data != nullptr, wantsB = p.toB.to.data != nullptr;
  const auto load = [&](int tile, int stage) {
    constexpr int kPieces = kColumns / 4;
    for (int i = me; i < kTileRows * kPieces; i += kThreads) {
      const int row = i / kPieces, col = i % kPieces * 4;
      const bool isThere = tile * kTileRows + row < p.m && col0 + col < p.n;
      const int64_t from =
          isThere ? (int64_t{tile} * kTileRows + row) * p.dc.rowStride + col0 + col : 0;
      copyPieceAsync(static_cast<uint32_t>(__cvta_generic_to_shared(&shared.tile[stage][row][col])),
                     p.dc.data + from, isThere);
    }
  };
  // A thread has one element of a tile of a, and of a tile's result da.
  static_assert(kTileRows * kRank <= kThreads);
  const int myRow = me / kRank, myK = me % kRank;
  const bool hasElement = myRow < kTileRows && myK < p.k;
  float ofA = 0.0f;
  const auto loadA = [&](int tile) {
    const int row = tile * kTileRows + myRow;
    ofA = wantsB && hasElement && row < p.m ? p.a(row, myK) : 0.0f;
  };
  const auto storeA = [&](int stage) {
    if (myRow < kTileRows) shared.a[stage][myRow][myK] = ofA;
  };
  awaitEarlier();
  int tile = chunk;
  if (tile < tiles) load(tile, 0);
  endCopyGroup();
  loadA(tile);
  if (wantsA) {
    for (int i = me; i < kRank * kColumns; i += kThreads) {
      const int k = i / kColumns, col = i % kColumns;
      shared.b[k][col] = k < p.k && col0 + col < p.n ? p.b(k, col0 + col) : 0.0f;
    }
  }
  storeA(0);
  const int slab = warp * kSlab;
  float sumB[kSlab / kStep][4] = {};
  for (int stage = 0; tile < tiles; tile += p.chunks, stage ^= 1) {
    if (tile + p.chunks < tiles) load(tile + p.chunks, stage ^ 1);
    endCopyGroup();
    loadA(tile + p.chunks);
    awaitCopies<1>();
    __syncthreads();
    const auto &rows = shared.tile[stage];
    if (wantsA) {
      float sumA[2][4] = {};  // da of 16 rows, transposed
#pragma unroll
      for (int first = 0; first < kSlab; first += kShort * kStep) {
        float part[2][4] = {};
#pragma unroll
        for (int s = 0; s < kShort; ++s) {
          const int col = slab + first + s * kStep + 2 * t;
          if (s * kStep >= kSlab) break;
          const float2 d0 = *reinterpret_cast<const float2 *>(&rows[g][col]);
          const float2 d1 = *reinterpret_cast<const float2 *>(&rows[g + 8][col]);
          const Split2 right[2] = {{d0.x, d0.y}, {d1.x, d1.y}};
          const float2 upper = *reinterpret_cast<const float2 *>(&shared.b[g][col]);
          const float2 lower = *reinterpret_cast<const float2 *>(&shared.b[g + 8][col]);
          multiply(part, Split4(upper.x, lower.x, upper.y, lower.y), right);
        }
#pragma unroll
        for (int e = 0; e < 8; ++e) sumA[e / 4][e % 4] += part[e / 4][e % 4];
      }
#pragma unroll
      for (int e = 0; e < 8; ++e)
        shared.parts[warp][8 * (e / 4) + 2 * t + e % 2][g + e % 4 / 2 * 8] = sumA[e / 4][e % 4];
    }
    if (wantsB) {
      float part[kSlab / kStep][4] = {};
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        // a is the left factor: columns of a are rows of the results.
        const auto &upper = shared.a[stage][s * kStep + t],
                   &lower = shared.a[stage][s * kStep + t + 4];
        const Split4 left(upper[g], upper[g + 8], lower[g], lower[g + 8]);
#pragma unroll
        for (int c = 0; c < kSlab / kStep; ++c) {
          const int col = slab + c * kStep + g;
          multiply(part[c], left, {rows[s * kStep + t][col], rows[s * kStep + t + 4][col]});
        }
      }
#pragma unroll
      for (int c = 0; c < kSlab / kStep; ++c) {
#pragma unroll
        for (int e = 0; e < 4; ++e) sumB[c][e] += part[c][e];
      }
    }
    storeA(stage ^ 1);
    __syncthreads();
    const int64_t at = int64_t{tile} * kTileRows + myRow;
    if (wantsA && hasElement && at < p.m) {
      float sum = 0.0f;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += shared.parts[w][myRow][myK];
      if (p.da) {
        p.da[(int64_t{group} * p.m + at) * p.k + myK] = sum;
      } else {
        store(p.toA, at, myK, sum);
      }
    }
    // The next round's barrier ends these reads before the next parts are written. The next round's
    // copies overwrite this tile, which no warp reads after the barrier above.
  }
  letNextBegin();
  if (!wantsB) return;
#pragma unroll
  for (int c = 0; c < kSlab / kStep; ++c) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int k = g + 8 * half, col = col0 + slab + c * kStep + 2 * t;
      if (k >= p.k || col >= p.n) continue;
      // n is a multiple of four, so the next column exists, and pairs are aligned.
      *reinterpret_cast<float2 *>(p.db + (int64_t{chunk} * p.k + k) * p.n + col) =
          make_float2(sumB[c][2 * half], sumB[c][2 * half + 1]);
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

template <int kSlab>
void launchPair(const Context &context, Pair32 &p, int processors) {
  using Shared = Memory<kSlab>;
  const int tiles = (p.m + kTileRows - 1) / kTileRows;
  p.groups = (p.n + Shared::kColumns - 1) / Shared::kColumns;
  p.chunks = pulsora::max(pulsora::min(tiles, processors / p.groups), 1);
  const int64_t ofA = p.toA.to.data && p.groups > 1 ? int64_t{p.m} * p.k : 0;
  const int64_t ofB = p.toB.to.data ? int64_t{p.k} * p.n : 0;
  Buffer<float> da(context, p.groups * ofA), db(context, p.chunks * ofB);
  p.da = ofA > 0 ? da.data() : nullptr;
  p.db = ofB > 0 ? db.data() : nullptr;
  PULSORA_CUDA_CHECK(cudaFuncSetAttribute(
      pairKernel<kSlab>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)));
  launch(context.stream, pairKernel<kSlab>, static_cast<unsigned>(p.groups * p.chunks), kThreads,
         sizeof(Shared), p);
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
  if (dc.rows < kLeastRows || dc.cols < kLeastColumns || a.cols < 1 || a.cols > kRank ||
      !lowrank::hasPieces(dc) || !lowrank::isCountable(dc.rows) ||
      !lowrank::isCountable(dc.cols * kRank) || context.gpuProducts == GpuProducts::Reproducible)
    return false;
  const CudaScope scope(context.device);
  const lowrank::GpuFacts gpu = lowrank::factsOf(context.device);
  if (gpu.capability < 90) return false;  // less shared memory
  Pair32 p{dc, a, b, da, db};
  p.m = static_cast<int>(dc.rows);
  p.n = static_cast<int>(dc.cols);
  p.k = static_cast<int>(a.cols);
  constexpr int kSlab = 64;  // many columns of a warp, where tiles of rows occupy the processors
  const int64_t ofColumns = (dc.cols + kWarps * kSlab - 1) / (kWarps * kSlab);
  if ((dc.rows + kTileRows - 1) / kTileRows * ofColumns >= gpu.processors) {
    launchPair<kSlab>(context, p, gpu.processors);
  } else {
    launchPair<8>(context, p, gpu.processors);
  }
  return true;
}

}  // namespace pulsora
