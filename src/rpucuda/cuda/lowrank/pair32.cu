#include "core/buffer.h"
#include "cuda/core/async_copy.cuh"
#include "cuda/lowrank/fragments.cuh"
#include "cuda/lowrank/tensor_floats.cuh"
#include "lowrank/kernels.h"

// Both gradients of an adapter C = A B in single precision, da = dc b^T and db = a^T dc, in one
// pass over dc. A block takes tile after tile of 16 rows of a group of columns, and a warp takes a
// slab of these columns. The sums of db stay in registers; the sums of da are short, and added over
// the warps in shared memory. A second kernel adds the blocks' parts in a fixed order. In both
// products, K is the 16 rows of the tensor cores' results, and dc the right factor: the rows of dc
// are columns of one product and terms of the other.

namespace pulsora {
namespace {

using lowrank::kTileRows;
using lowrank::multiplyTile;
using lowrank::splitValue;

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kRank = 16;
constexpr int kStep = 8;   // columns or rows of a product of the tensor cores
constexpr int kShort = 4;  // steps summed inside the tensor cores

struct Pair32 {
  MatrixView<const float> dc, a, b;
  float *da;  // [groups, m, K], or the result itself for a single group
  float *db;  // [chunks, K, n]
  MatrixView<float> toA, toB;
  int m, n, k, groups, chunks;
  bool accumulates;
};

/// A tile of dc, b, and the warps' parts of da, in shared memory. A row is padded by 8 floats, so
/// that neither pairs along rows nor single floats across rows conflict in a bank.
template <int kSlab>
struct Memory {
  static constexpr int kColumns = kWarps * kSlab;
  static constexpr int kPitch = kColumns + 8;
  float tile[2][kTileRows][kPitch];
  float b[kRank][kPitch];
  float parts[kWarps][kTileRows][kRank];
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

/// d += a (x, y).
__device__ inline void multiply(float (&d)[4], const Split4 &a, float x, float y) {
  uint32_t big[2], rest[2];
  splitValue(x, big[0], rest[0]);
  splitValue(y, big[1], rest[1]);
  multiplyTile(d, a.rest, big);
  multiplyTile(d, a.big, rest);
  multiplyTile(d, a.big, big);
}

__device__ inline void copyPiece(float *to, const float *from, bool isThere) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from), "r"(isThere ? 16 : 0)
               : "memory");
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
  const auto load = [&](int tile, int stage) {
    constexpr int kPieces = kColumns / 4;
    for (int i = me; i < kTileRows * kPieces; i += kThreads) {
      const int row = i / kPieces, col = i % kPieces * 4;
      const bool isThere = tile * kTileRows + row < p.m && col0 + col < p.n;
      const int64_t from =
          isThere ? (int64_t{tile} * kTileRows + row) * p.dc.rowStride + col0 + col : 0;
      copyPiece(&shared.tile[stage][row][col], p.dc.data + from, isThere);
    }
  };
  awaitEarlier();
  int tile = chunk;
  if (tile < tiles) load(tile, 0);
  endCopyGroup();
  for (int i = me; i < kRank * kColumns; i += kThreads) {
    const int k = i / kColumns, col = i % kColumns;
    shared.b[k][col] = k < p.k && col0 + col < p.n ? p.b(k, col0 + col) : 0.0f;
  }
  const int slab = warp * kSlab;
  float sumB[kSlab / kStep][4] = {};
  for (int stage = 0; tile < tiles; tile += p.chunks, stage ^= 1) {
    if (tile + p.chunks < tiles) load(tile + p.chunks, stage ^ 1);
    endCopyGroup();
    // a as the left factor of db: columns of a are rows of the results.
    float a[2][4];
#pragma unroll
    for (int s = 0; s < 2; ++s) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = tile * kTileRows + s * kStep + t + e / 2 * 4, k = g + e % 2 * 8;
        a[s][e] = row < p.m && k < p.k ? p.a(row, k) : 0.0f;
      }
    }
    awaitCopies<1>();
    __syncthreads();
    const auto &rows = shared.tile[stage];
    float sumA[2][4] = {};  // da of 16 rows, transposed
#pragma unroll(kSlab > 32 ? 1 : 2)
    for (int first = 0; first < kSlab; first += kShort * kStep) {
      float part[2][4] = {};
#pragma unroll
      for (int s = 0; s < kShort; ++s) {
        const int col = slab + first + s * kStep + 2 * t;
        if (s * kStep >= kSlab) break;
        const float2 upper = *reinterpret_cast<const float2 *>(&shared.b[g][col]);
        const float2 lower = *reinterpret_cast<const float2 *>(&shared.b[g + 8][col]);
        const Split4 left(upper.x, lower.x, upper.y, lower.y);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float2 d = *reinterpret_cast<const float2 *>(&rows[g + 8 * r][col]);
          multiply(part[r], left, d.x, d.y);
        }
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int e = 0; e < 4; ++e) sumA[r][e] += part[r][e];
      }
    }
    const Split4 left[2] = {{a[0][0], a[0][1], a[0][2], a[0][3]},
                            {a[1][0], a[1][1], a[1][2], a[1][3]}};
#pragma unroll
    for (int c = 0; c < kSlab / kStep; ++c) {
      const int col = slab + c * kStep + g;
      float part[4] = {};
#pragma unroll
      for (int s = 0; s < 2; ++s)
        multiply(part, left[s], rows[s * kStep + t][col], rows[s * kStep + t + 4][col]);
#pragma unroll
      for (int e = 0; e < 4; ++e) sumB[c][e] += part[e];
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        shared.parts[warp][8 * r + 2 * t + e % 2][g + e / 2 * 8] = sumA[r][e];
    }
    __syncthreads();
    const int row = me / kRank, k = me % kRank;
    const int64_t at = int64_t{tile} * kTileRows + row;
    if (at < p.m && k < p.k) {
      float sum = 0.0f;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += shared.parts[w][row][k];
      if (p.groups == 1) {
        float &to = p.toA(at, k);
        to = p.accumulates ? to + sum : sum;
      } else {
        p.da[(int64_t{group} * p.m + at) * p.k + k] = sum;
      }
    }
    // The next round's barrier ends these reads before the next parts are written. The next round's
    // copies overwrite this tile, which no warp reads after the barrier above.
  }
  letNextBegin();
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
__global__ void __launch_bounds__(kThreads) sumPairKernel(const __grid_constant__ Pair32 p) {
  awaitEarlier();
  __shared__ float shared[kThreads];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t sizeOfB = int64_t{p.k} * p.n, sizeOfA = p.groups > 1 ? int64_t{p.m} * p.k : 0;
  const int64_t blocksOfB = (sizeOfB + 31) / 32;
  const bool ofB = blockIdx.x < blocksOfB;
  const int64_t size = ofB ? sizeOfB : sizeOfA;
  const int64_t e = (ofB ? blockIdx.x : blockIdx.x - blocksOfB) * 32 + lane;
  const float *from = ofB ? p.db : p.da;
  const int count = ofB ? p.chunks : p.groups;
  float sum = 0.0f;
  if (e < size) {
#pragma unroll 8
    for (int i = warp; i < count; i += kWarps) sum += from[i * size + e];
  }
  shared[threadIdx.x] = sum;
  __syncthreads();
  if (warp != 0 || e >= size) return;
  for (int other = 1; other < kWarps; ++other) sum += shared[other * 32 + lane];
  float &to = ofB ? p.toB(e / p.n, e % p.n) : p.toA(e / p.k, e % p.k);
  to = p.accumulates ? to + sum : sum;
}

template <int kSlab>
void launchPair(const Context &context, Pair32 &p, int processors) {
  constexpr int kBytes = sizeof(Memory<kSlab>);
  const int tiles = (p.m + kTileRows - 1) / kTileRows;
  p.groups = (p.n + Memory<kSlab>::kColumns - 1) / Memory<kSlab>::kColumns;
  p.chunks = pulsora::max(pulsora::min(tiles, processors / p.groups), 1);
  Buffer<float> da(context, p.groups > 1 ? int64_t{p.groups} * p.m * p.k : 0);
  Buffer<float> db(context, int64_t{p.chunks} * p.k * p.n);
  p.da = da.data(), p.db = db.data();
  PULSORA_CUDA_CHECK(
      cudaFuncSetAttribute(pairKernel<kSlab>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  launch(context.stream, pairKernel<kSlab>, static_cast<unsigned>(p.groups * p.chunks), kThreads,
         kBytes, p);
  const int64_t ofA = p.groups > 1 ? int64_t{p.m} * p.k : 0;
  const auto blocks = static_cast<unsigned>((int64_t{p.k} * p.n + 31) / 32 + (ofA + 31) / 32);
  launch(context.stream, sumPairKernel, blocks, kThreads, 0, p);
}

}  // namespace

bool cudaAdapterGradients(const Context &context, MatrixView<const float> dc,
                          MatrixView<const float> a, MatrixView<const float> b, bool accumulate,
                          MatrixView<float> da, MatrixView<float> db) {
  // With fewer terms, the error of leaving out the smallest of the four products of halves would
  // show.
  constexpr int64_t kLeastRows = 64, kLeastColumns = 128;
  if (!da.data || !db.data || dc.rows < kLeastRows || dc.cols < kLeastColumns || a.cols < 1 ||
      a.cols > kRank || !lowrank::hasPieces(dc) || !lowrank::isCountable(dc.rows) ||
      !lowrank::isCountable(dc.cols * kRank) || context.gpuProducts == GpuProducts::Reproducible)
    return false;
  const CudaScope scope(context.device);
  const lowrank::GpuFacts gpu = lowrank::factsOf(context.device);
  if (gpu.capability < 90) return false;  // less shared memory
  Pair32 p{dc,
           a,
           b,
           nullptr,
           nullptr,
           da,
           db,
           static_cast<int>(dc.rows),
           static_cast<int>(dc.cols),
           static_cast<int>(a.cols),
           0,
           0,
           accumulate};
  const int64_t wholeBlocks = (dc.rows + kTileRows - 1) / kTileRows * ((dc.cols + 1023) / 1024);
  if (wholeBlocks >= gpu.processors) {
    launchPair<128>(context, p, gpu.processors);
  } else {
    launchPair<16>(context, p, gpu.processors);
  }
  return true;
}

}  // namespace pulsora
