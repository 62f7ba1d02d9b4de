#include "cuda/lowrank/fragments.cuh"
#include "cuda/lowrank/updates.cuh"

// The update in 16 bits. A warp owns 16 rows and a part of the columns; the warps of a block add
// their partial sums of x v in shared memory, in a fixed order. Gated, and as the sum of two
// numbers of 16 bits, x v is a factor of the second product without leaving its registers.
//
// Where v and u fit into the registers of a block, blocks stay and take tile after tile (resident
// kernel); otherwise each block takes one tile and reads v and u from the cache (passing kernel).

namespace pulsora::lowrank {
namespace {

template <class T>
struct Forward {
  const T *x;
  int64_t xStride;
  Factor<T> v;
  CodeReader<T> codes;
  Factor<T> u;
  const T *base;
  int64_t baseStride;
  T *y;
  int64_t yStride;
  int rows;
  float scale;
  bool streams;
};

/// x v, gated and split: fragments of the second product, and the factors of its results of rows g
/// and g + 8.
template <class T, int kTiles>
struct Gated {
  uint32_t high[kTiles][2];
  uint32_t low[kTiles][2];
  float factor[2];

  __device__ Gated(float2 (&h)[kTiles][2], const float2 (&codes)[kTiles][2], float scale) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float largest = 0.0f;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        h[n][r].x *= codes[n][r].x;
        h[n][r].y *= codes[n][r].y;
        largest = fmaxf(largest, fmaxf(fabsf(h[n][r].x), fabsf(h[n][r].y)));
      }
      // The four lanes of a row hold the whole row.
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, 2));
      const PowerOfTwo range = rangeOf<T>(largest);
      factor[r] = scale * range.down;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const float2 scaled = make_float2(h[n][r].x * range.up, h[n][r].y * range.up);
        splitPair<T>(scaled, high[n][r], low[n][r]);
      }
    }
  }

  /// d = the product with eight columns of u; `u` has a word for every tile.
  __device__ void multiply(float (&d)[4], const uint32_t (&u)[kTiles]) const {
    if constexpr (kTiles == 1) {
      Pair<T>::multiply(d, high[0][0], high[0][1], low[0][0], low[0][1], u[0], u[0]);
    } else {
#pragma unroll
      for (int n = 0; n < kTiles; n += 2) {
        Pair<T>::multiply(d, high[n][0], high[n][1], high[n + 1][0], high[n + 1][1], u[n],
                          u[n + 1]);
        Pair<T>::multiply(d, low[n][0], low[n][1], low[n + 1][0], low[n + 1][1], u[n], u[n + 1]);
      }
    }
  }
};

/// h += the product of 16 rows and 32 columns of x, in pieces of 16 bytes, with 32 rows of v.
template <class T, int kTiles>
__device__ inline void multiplyChunk(float (&h)[kTiles][4], const uint4 (&x)[2],
                                     const uint32_t (&v)[kTiles][4]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    Pair<T>::multiply(h[n], x[0].x, x[1].x, x[0].y, x[1].y, v[n][0], v[n][1]);
    Pair<T>::multiply(h[n], x[0].z, x[1].z, x[0].w, x[1].w, v[n][2], v[n][3]);
  }
}

/// The eight results of a lane in row g + 8 r, added to the base, as 16 bytes.
template <class T>
__device__ inline uint4 packed(const float (&d)[4][4], int r, float factor, const uint4 *base) {
  uint32_t out[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float2 added = {0.0f, 0.0f};
    if (base) added = Pair<T>::unpack(reinterpret_cast<const uint32_t *>(base)[i]);
    out[i] =
        Pair<T>::pack(fmaf(d[i][2 * r], factor, added.x), fmaf(d[i][2 * r + 1], factor, added.y));
  }
  return make_uint4(out[0], out[1], out[2], out[3]);
}

template <class T, int kTiles, int kChunks, int kAlong, int kGroups, int kBlocks, bool kAdds>
__global__ void __launch_bounds__(32 * kAlong * kGroups, kBlocks)
    residentKernel(const __grid_constant__ Forward<T> p) {
  constexpr int kN = 8 * kTiles;
  __shared__ float shared[2][kAlong * kGroups * kTileRows * kN];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int along = warp % kAlong, group = warp / kAlong, g = lane / 4, t = lane % 4;
  const int tiles = (p.rows + kTileRows * kGroups - 1) / (kTileRows * kGroups);
  const int first = along * kChunks * kChunk;  // column
  uint4 x[kChunks][2];
  float2 codes[kTiles][2];
  const auto rowOf = [&](int tile, int r) {
    return (tile * kGroups + group) * kTileRows + g + 8 * r;
  };
  const auto load = [&](int tile) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = min(rowOf(tile, r), p.rows - 1);
      const T *from = p.x + row * p.xStride + t * 8;
#pragma unroll
      for (int k = 0; k < kChunks; ++k) {
        const int col = first + k * kChunk;
        x[k][r] = col + t * 8 < p.v.rows ? readOnce(from + col) : make_uint4(0, 0, 0, 0);
      }
#pragma unroll
      for (int n = 0; n < kTiles; ++n) codes[n][r] = codesAt(p.codes, row, n * 8 + 2 * t, p.v.cols);
    }
  };
  awaitEarlier();
  int tile = static_cast<int>(blockIdx.x);
  if (tile < tiles) load(tile);
  uint32_t v[kChunks][kTiles][4], u[kChunks][4][kTiles];
#pragma unroll
  for (int k = 0; k < kChunks; ++k) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = first + k * kChunk + columnOf(g, i);
        v[k][n][i] = p.v.pairAt(row, n * 8 + 2 * t);
        u[k][i][n] = p.u.pairAt(row, n * 8 + 2 * t);
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kChunks; ++k) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) v[k][n][i] = transposed(v[k][n][i]);
    }
  }
  for (int buffer = 0; tile < tiles; tile += static_cast<int>(gridDim.x), buffer ^= 1) {
    const int rows[2] = {rowOf(tile, 0), rowOf(tile, 1)};
    uint4 base[kAdds ? kChunks : 1][2];
    if constexpr (kAdds) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const T *from = p.base + min(rows[r], p.rows - 1) * p.baseStride + t * 8;
#pragma unroll
        for (int k = 0; k < kChunks; ++k) {
          const int col = first + k * kChunk;
          if (col + t * 8 < p.u.rows)
            base[k][r] = __ldcg(reinterpret_cast<const uint4 *>(from + col));
        }
      }
    }
    float h[kTiles][4] = {};
#pragma unroll
    for (int k = 0; k < kChunks; ++k) multiplyChunk<T, kTiles>(h, x[k], v[k]);
    float2 gates[kTiles][2];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) gates[n][0] = codes[n][0], gates[n][1] = codes[n][1];
    const int next = tile + static_cast<int>(gridDim.x);
    if (next < tiles) {
      load(next);
    } else {
      letNextBegin();
    }
    float2 sum[kTiles][2];
    sumAlong<kTiles, kAlong, kGroups>(h, sum, shared[buffer], along, group, g, t);
    const Gated<T, kTiles> gated(sum, gates, p.scale);
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
      float d[4][4] = {};
#pragma unroll
      for (int i = 0; i < 4; ++i) gated.multiply(d[i], u[k][i]);
      const int col = first + k * kChunk + t * 8;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const uint4 *added = kAdds ? &base[kAdds ? k : 0][r] : nullptr;
        if (rows[r] < p.rows && col < p.u.rows)
          write(p.y + rows[r] * p.yStride + col, packed<T>(d, r, gated.factor[r], added),
                p.streams);
      }
    }
  }
}

constexpr int kPassingWarps = 8;

template <class T, int kTiles>
__global__ void __launch_bounds__(32 * kPassingWarps, 2)
    passingKernel(const __grid_constant__ Forward<T> p) {
  constexpr int kN = 8 * kTiles;
  __shared__ float shared[kPassingWarps * kTileRows * kN];
  awaitEarlier();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int g = lane / 4, t = lane % 4;
  const int rows[2] = {static_cast<int>(blockIdx.x) * kTileRows + g,
                       static_cast<int>(blockIdx.x) * kTileRows + g + 8};
  const T *from[2];
  float2 codes[kTiles][2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = min(rows[r], p.rows - 1);
    from[r] = p.x + row * p.xStride + t * 8;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) codes[n][r] = codesAt(p.codes, row, n * 8 + 2 * t, p.v.cols);
  }
  float h[kTiles][4] = {};
#pragma unroll(kTiles < 4 ? 2 : 1)
  for (int col = warp * kChunk; col < p.v.rows; col += kPassingWarps * kChunk) {
    uint4 x[2];
#pragma unroll
    for (int r = 0; r < 2; ++r)
      x[r] = col + t * 8 < p.v.rows ? readOnce(from[r] + col) : make_uint4(0, 0, 0, 0);
    uint32_t v[kTiles][4];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        v[n][i] = transposed(p.v.pairAt(col + columnOf(g, i), n * 8 + 2 * t));
    }
    multiplyChunk<T, kTiles>(h, x, v);
  }
  float2 sum[kTiles][2];
  sumAlong<kTiles, kPassingWarps, 1>(h, sum, shared, warp, 0, g, t);
  const Gated<T, kTiles> gated(sum, codes, p.scale);
#pragma unroll(kTiles < 4 ? 2 : 1)
  for (int col = warp * kChunk; col < p.u.rows; col += kPassingWarps * kChunk) {
    float d[4][4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t u[kTiles];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) u[n] = p.u.pairAt(col + columnOf(g, i), n * 8 + 2 * t);
      gated.multiply(d[i], u);
    }
    if (col + t * 8 >= p.u.rows) continue;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (rows[r] >= p.rows) continue;
      uint4 base;
      if (p.base) {
        base =
            __ldcg(reinterpret_cast<const uint4 *>(p.base + rows[r] * p.baseStride + col + t * 8));
      }
      write(p.y + rows[r] * p.yStride + col + t * 8,
            packed<T>(d, r, gated.factor[r], p.base ? &base : nullptr), p.streams);
    }
  }
}

/// A shape of the resident kernel, for at most kChunks * kAlong * 32 columns.
template <int kTilesOf, int kChunksOf, int kAlongOf, int kGroupsOf, int kBlocksOf>
struct Plan {
  static constexpr int kTiles = kTilesOf, kChunks = kChunksOf, kAlong = kAlongOf;
  static constexpr int kGroups = kGroupsOf, kBlocks = kBlocksOf;
  static constexpr int kColumns = kChunks * kAlong * kChunk;
};

template <class T, class P>
void launchResident(const Context &context, const Forward<T> &p, int blocks) {
  const int tiles = (p.rows + kTileRows * P::kGroups - 1) / (kTileRows * P::kGroups);
  const auto grid = static_cast<unsigned>(min(tiles, blocks));
  constexpr unsigned kThreads = 32U * P::kAlong * P::kGroups;
  if (p.base) {
    launch(context.stream,
           residentKernel<T, P::kTiles, P::kChunks, P::kAlong, P::kGroups, P::kBlocks, true>, grid,
           kThreads, 0, p);
  } else {
    launch(context.stream,
           residentKernel<T, P::kTiles, P::kChunks, P::kAlong, P::kGroups, P::kBlocks, false>, grid,
           kThreads, 0, p);
  }
}

template <class T, int kTiles>
void launchPassing(const Context &context, const Forward<T> &p) {
  const auto grid = static_cast<unsigned>((p.rows + kTileRows - 1) / kTileRows);
  launch(context.stream, passingKernel<T, kTiles>, grid, 32 * kPassingWarps, 0, p);
}

// Measured on an H200: one group of rows per block for few rows, two for many.
using Small = Plan<1, 2, 4, 1, 4>;
using Few = Plan<1, 6, 4, 1, 2>;
using Many = Plan<1, 4, 6, 2, 1>;
using Wide = Plan<2, 4, 12, 1, 1>;

template <class T>
void run(const Context &context, const Forward<T> &p, const GpuFacts &gpu) {
  const int columns = max(p.v.rows, p.u.rows);
  const int n = p.v.cols;
  const int twoEach = 2 * gpu.processors;
  if (n <= 8 && columns <= Small::kColumns) {
    launchResident<T, Small>(context, p, 4 * gpu.processors);
  } else if (n <= 8 && columns <= Many::kColumns && p.rows >= 32 * twoEach) {
    launchResident<T, Many>(context, p, twoEach);
  } else if (n <= 8 && columns <= Few::kColumns) {
    launchResident<T, Few>(context, p, twoEach);
  } else if (n <= 16 && columns <= Wide::kColumns) {
    launchResident<T, Wide>(context, p, gpu.processors);
  } else if (n <= 8) {
    launchPassing<T, 1>(context, p);
  } else if (n <= 16) {
    launchPassing<T, 2>(context, p);
  } else if (n <= 32) {
    launchPassing<T, 4>(context, p);
  } else {
    launchPassing<T, 8>(context, p);
  }
}

}  // namespace

template <class T>
bool forward16(const Context &context, const GatedLowRank &update, ConstAnyMatrix base,
               AnyMatrix y) {
  if (update.v.cols > 64 || update.v.cols == 0 || !hasPieces(update.x) || !hasPieces(y) ||
      (base.data && !hasPieces(base)) || !isCountable(update.x.rows) ||
      !isCountable(update.x.cols) || !isCountable(y.cols)) {
    return false;
  }
  const CudaScope scope(context.device);
  const GpuFacts gpu = factsOf(context.device);
  const Forward<T> p{static_cast<const T *>(update.x.data), update.x.rowStride, Factor<T>(update.v),
                     CodeReader<T>(update.codes), Factor<T>(update.u),
                     static_cast<const T *>(base.data), base.rowStride, static_cast<T *>(y.data),
                     y.rowStride, static_cast<int>(y.rows), update.scale,
                     // Results too large for the caches should not displace inputs.
                     y.size() * elementBytes(y.type) >= gpu.cacheBytes / 6};
  run(context, p, gpu);
  return true;
}

template bool forward16<Half>(const Context &, const GatedLowRank &, ConstAnyMatrix, AnyMatrix);
template bool forward16<BFloat16>(const Context &, const GatedLowRank &, ConstAnyMatrix, AnyMatrix);

}  // namespace pulsora::lowrank
