#include "core/buffer.h"
#include "cuda/lowrank/fragments.cuh"
#include "cuda/lowrank/updates.cuh"

// All gradients in 16 bits, in one pass over x and dy: h = x v and g = dy u give the gradient of
// the codes at once and dx after one more product; the registers of x and dy, transposed, are also
// a factor of the gradients of v and u. The sums of these two gradients stay in registers while a
// block takes tile after tile; every block writes one partial sum, and a second kernel adds the
// partial sums in a fixed order.

namespace pulsora::lowrank {
namespace {

template <class T>
struct Backward {
  const T *x;
  int64_t xStride;
  const T *dy;
  int64_t dyStride;
  Factor<T> v;
  CodeReader<T> codes;
  Factor<T> u;
  T *dx;
  int64_t dxStride;
  MatrixView<float> dcodes;
  float *partials;  // [blocks, K1 N + K2 N]; null: no gradient of v or u is wanted
  int rows;
  float scale;
  bool streams;
};

__device__ inline void loadTiles(uint32_t (&tiles)[4], const uint4 *from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(from))));
}
__device__ inline void loadTransposed(uint32_t (&tiles)[4], const uint4 *from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(from))));
}

/// Copies a factor to shared memory, as tiles of 8 rows, padded with zeros: row j of tile i of a
/// chunk is row columnOf(j, i) of the chunk.
template <class T, int kTiles, int kRows, int kThreads>
__device__ inline void fill(uint4 *to, const Factor<T> &factor) {
  for (int e = static_cast<int>(threadIdx.x); e < kRows * kTiles; e += kThreads) {
    const int j = e % 8, i = e / 8 % 4, n = e / kChunk % kTiles, chunk = e / (kChunk * kTiles);
    const int row = chunk * kChunk + columnOf(j, i);
    to[e] = make_uint4(factor.pairAt(row, n * 8), factor.pairAt(row, n * 8 + 2),
                       factor.pairAt(row, n * 8 + 4), factor.pairAt(row, n * 8 + 6));
  }
}

/// x v or dy u of a tile, gated, as the sum of two pairs of 16 bits: with rows along lanes, and
/// transposed.
template <class T, int kTiles>
struct Split {
  uint32_t high[kTiles][2], low[kTiles][2];
  uint32_t highAcross[kTiles][2], lowAcross[kTiles][2];
  float down;

  __device__ explicit Split(const float2 (&value)[kTiles][2]) {
    float largest = 0.0f;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int r = 0; r < 2; ++r)
        largest = fmaxf(largest, fmaxf(fabsf(value[n][r].x), fabsf(value[n][r].y)));
    }
    // One range for the tile, because products sum over its rows.
#pragma unroll
    for (int other = 1; other < 32; other *= 2)
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, other));
    const PowerOfTwo range = rangeOf<T>(largest);
    down = range.down;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float2 scaled = make_float2(value[n][r].x * range.up, value[n][r].y * range.up);
        splitPair<T>(scaled, high[n][r], low[n][r]);
        highAcross[n][r] = transposed(high[n][r]);
        lowAcross[n][r] = transposed(low[n][r]);
      }
    }
  }
};

/// sums += rows^T gated, for two tiles of 8 columns of x or dy, whose registers are `a` and `b` for
/// rows g and `c` and `d` for rows g + 8.
template <class T, int kTiles>
__device__ inline void addAcross(float (&sums)[kTiles][4], uint32_t a, uint32_t b, uint32_t c,
                                 uint32_t d, const Split<T, kTiles> &gated) {
  a = transposed(a), b = transposed(b), c = transposed(c), d = transposed(d);
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    float part[4] = {};
    Pair<T>::multiply(part, a, b, c, d, gated.lowAcross[n][0], gated.lowAcross[n][1]);
    Pair<T>::multiply(part, a, b, c, d, gated.highAcross[n][0], gated.highAcross[n][1]);
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[n][e] = fmaf(part[e], gated.down, sums[n][e]);
  }
}

template <class T, int kTiles, int kChunks, int kAlong>
__global__ void __launch_bounds__(32 * kAlong, 1)
    backwardKernel(const __grid_constant__ Backward<T> p) {
  constexpr int kN = 8 * kTiles, kColumns = kAlong * kChunks * kChunk, kThreads = 32 * kAlong;
  __shared__ uint4 ofV[kColumns * kTiles], ofU[kColumns * kTiles];
  __shared__ float shared[2][2][kAlong * kTileRows * kN];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int along = static_cast<int>(threadIdx.x) / 32;
  const int g = lane / 4, t = lane % 4;
  const int tiles = (p.rows + kTileRows - 1) / kTileRows;
  const int first = along * kChunks * kChunk;
  uint4 x[kChunks][2], y[kChunks][2];
  float2 codes[kTiles][2];
  const auto load = [&](int tile) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = min(tile * kTileRows + g + 8 * r, p.rows - 1);
      const T *fromX = p.x + row * p.xStride + t * 8;
      const T *fromY = p.dy + row * p.dyStride + t * 8;
#pragma unroll
      for (int k = 0; k < kChunks; ++k) {
        const int col = first + k * kChunk;
        y[k][r] = col + t * 8 < p.u.rows ? readOnce(fromY + col) : make_uint4(0, 0, 0, 0);
        x[k][r] = col + t * 8 < p.v.rows ? readOnce(fromX + col) : make_uint4(0, 0, 0, 0);
      }
#pragma unroll
      for (int n = 0; n < kTiles; ++n) codes[n][r] = codesAt(p.codes, row, n * 8 + 2 * t, p.v.cols);
    }
  };
  awaitEarlier();
  int tile = static_cast<int>(blockIdx.x);
  if (tile < tiles) load(tile);
  fill<T, kTiles, kColumns, kThreads>(ofV, p.v);
  fill<T, kTiles, kColumns, kThreads>(ofU, p.u);
  __syncthreads();
  const uint4 *myV = ofV + along * kChunks * kTiles * kChunk + lane;
  const uint4 *myU = ofU + along * kChunks * kTiles * kChunk + lane;
  float sumsV[kChunks][2][kTiles][4] = {}, sumsU[kChunks][2][kTiles][4] = {};
  for (int buffer = 0; tile < tiles; tile += static_cast<int>(gridDim.x), buffer ^= 1) {
    const int rows[2] = {tile * kTileRows + g, tile * kTileRows + g + 8};
    float partH[kTiles][4] = {}, partG[kTiles][4] = {};
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        uint32_t b[4];
        loadTransposed(b, myV + (k * kTiles + n) * kChunk);
        Pair<T>::multiply(partH[n], x[k][0].x, x[k][1].x, x[k][0].y, x[k][1].y, b[0], b[1]);
        Pair<T>::multiply(partH[n], x[k][0].z, x[k][1].z, x[k][0].w, x[k][1].w, b[2], b[3]);
        loadTransposed(b, myU + (k * kTiles + n) * kChunk);
        Pair<T>::multiply(partG[n], y[k][0].x, y[k][1].x, y[k][0].y, y[k][1].y, b[0], b[1]);
        Pair<T>::multiply(partG[n], y[k][0].z, y[k][1].z, y[k][0].w, y[k][1].w, b[2], b[3]);
      }
    }
    float2 h[kTiles][2], gradient[kTiles][2];
    sumAlong<kTiles, kAlong, 1>(partH, h, shared[buffer][0], along, 0, g, t);
    sumAlong<kTiles, kAlong, 1>(partG, gradient, shared[buffer][1], along, 0, g, t);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int col = n * 8 + 2 * t;
        if (along == 0 && p.dcodes.data && rows[r] < p.rows) {
          if (col < p.v.cols) p.dcodes(rows[r], col) = p.scale * h[n][r].x * gradient[n][r].x;
          if (col + 1 < p.v.cols)
            p.dcodes(rows[r], col + 1) = p.scale * h[n][r].y * gradient[n][r].y;
        }
        // Rows beyond the last row are copies of the last row, and must not be added.
        const bool isThere = rows[r] < p.rows;
        const float2 gate = codes[n][r];
        h[n][r] = isThere ? make_float2(h[n][r].x * gate.x, h[n][r].y * gate.y) : float2{};
        gradient[n][r] =
            isThere ? make_float2(gradient[n][r].x * gate.x, gradient[n][r].y * gate.y) : float2{};
      }
    }
    const Split<T, kTiles> ofG(gradient);
    if (p.partials) {
      const Split<T, kTiles> ofH(h);
#pragma unroll
      for (int k = 0; k < kChunks; ++k) {
        addAcross<T, kTiles>(sumsV[k][0], x[k][0].x, x[k][0].y, x[k][1].x, x[k][1].y, ofG);
        addAcross<T, kTiles>(sumsV[k][1], x[k][0].z, x[k][0].w, x[k][1].z, x[k][1].w, ofG);
        addAcross<T, kTiles>(sumsU[k][0], y[k][0].x, y[k][0].y, y[k][1].x, y[k][1].y, ofH);
        addAcross<T, kTiles>(sumsU[k][1], y[k][0].z, y[k][0].w, y[k][1].z, y[k][1].w, ofH);
      }
    }
    const int next = tile + static_cast<int>(gridDim.x);
    if (next < tiles) {
      load(next);
    } else {
      letNextBegin();
    }
    if (!p.dx) continue;
    const float factor = p.scale * ofG.down;
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
      uint32_t b[kTiles][4], out[2][4];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) loadTiles(b[n], myV + (k * kTiles + n) * kChunk);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float d[4] = {};
        if constexpr (kTiles == 1) {
          Pair<T>::multiply(d, ofG.high[0][0], ofG.high[0][1], ofG.low[0][0], ofG.low[0][1],
                            b[0][i], b[0][i]);
        } else {
#pragma unroll
          for (int n = 0; n < kTiles; n += 2) {
            Pair<T>::multiply(d, ofG.high[n][0], ofG.high[n][1], ofG.high[n + 1][0],
                              ofG.high[n + 1][1], b[n][i], b[n + 1][i]);
            Pair<T>::multiply(d, ofG.low[n][0], ofG.low[n][1], ofG.low[n + 1][0], ofG.low[n + 1][1],
                              b[n][i], b[n + 1][i]);
          }
        }
#pragma unroll
        for (int r = 0; r < 2; ++r)
          out[r][i] = Pair<T>::pack(d[2 * r] * factor, d[2 * r + 1] * factor);
      }
      const int col = first + k * kChunk + t * 8;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (rows[r] < p.rows && col < p.v.rows) {
          write(p.dx + rows[r] * p.dxStride + col,
                make_uint4(out[r][0], out[r][1], out[r][2], out[r][3]), p.streams);
        }
      }
    }
  }
  if (!p.partials) return;
  const int n0 = p.v.cols;
  const int64_t size = static_cast<int64_t>(p.v.rows + p.u.rows) * n0;
  float *mine = p.partials + static_cast<int64_t>(blockIdx.x) * size;
  const auto leave = [&](float *to, int ofRows, const float (&sums)[kTiles][4], int k, int half) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = first + k * kChunk + columnOf(g, 2 * half + e / 2);
        const int col = n * 8 + 2 * t + e % 2;
        if (row < ofRows && col < n0) to[row * n0 + col] = sums[n][e];
      }
    }
  };
#pragma unroll
  for (int k = 0; k < kChunks; ++k) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      leave(mine, p.v.rows, sumsV[k][half], k, half);
      leave(mine + static_cast<int64_t>(p.v.rows) * n0, p.u.rows, sumsU[k][half], k, half);
    }
  }
}

constexpr int kSumThreads = 256;

/// Adds up the partial sums of all blocks: eight warps take every eighth block each, and then the
/// warps' sums are added. The first elements are the gradient of v, the others the gradient of u.
template <class T>
__global__ void __launch_bounds__(kSumThreads)
    sumPartials(const float *partials, int blocks, MatrixView<T> dv, MatrixView<T> du,
                int64_t sizeOfV, int64_t size, float scale) {
  awaitEarlier();
  __shared__ float shared[kSumThreads];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t e = static_cast<int64_t>(blockIdx.x) * 32 + lane;
  float sum = 0.0f;
  if (e < size) {
    for (int block = warp; block < blocks; block += kSumThreads / 32)
      sum += partials[block * size + e];
  }
  shared[threadIdx.x] = sum;
  __syncthreads();
  if (warp != 0 || e >= size) return;
  for (int other = 1; other < kSumThreads / 32; ++other) sum += shared[other * 32 + lane];
  const MatrixView<T> to = e < sizeOfV ? dv : du;
  const int64_t at = e < sizeOfV ? e : e - sizeOfV;
  if (to.data) to(at / to.cols, at % to.cols) = narrow<T>(scale * sum);
}

bool takes(const GatedLowRank &update, ConstAnyMatrix dy, const GatedGradients &gradients) {
  const int64_t columns = pulsora::max(update.x.cols, dy.cols);
  const int64_t n = update.v.cols;
  return n > 0 && n <= 8 && columns > 0 && columns <= 768 && update.x.rows > 0 &&
         isCountable(update.x.rows) && hasPieces(update.x) && hasPieces(dy) &&
         (!gradients.x.data || hasPieces(gradients.x));
}

int blocksFor(const GatedLowRank &update, const GpuFacts &gpu) {
  const int64_t tiles = (update.x.rows + kTileRows - 1) / kTileRows;
  return static_cast<int>(pulsora::min(tiles, static_cast<int64_t>(gpu.processors)));
}

template <class T, int kChunks, int kAlong>
void launchBackward(const Context &context, Backward<T> &p, const GatedGradients &gradients,
                    int blocks) {
  const int64_t sizeOfV = static_cast<int64_t>(p.v.rows) * p.v.cols;
  const int64_t size = sizeOfV + static_cast<int64_t>(p.u.rows) * p.u.cols;
  const bool sums = gradients.v.data || gradients.u.data;
  const bool given = gradients.scratch.size >= blocks * size;
  Buffer<float> own(context, sums && !given ? blocks * size : 0);
  if (sums) p.partials = given ? gradients.scratch.data : own.data();
  launch(context.stream, backwardKernel<T, 1, kChunks, kAlong>, static_cast<unsigned>(blocks),
         32U * kAlong, 0, p);
  if (!sums) return;
  const auto wanted = [](AnyMatrix m) { return m.data ? m.as<T>() : MatrixView<T>{}; };
  launch(context.stream, sumPartials<T>, static_cast<unsigned>((size + 31) / 32), kSumThreads, 0,
         p.partials, blocks, wanted(gradients.v), wanted(gradients.u), sizeOfV, size, p.scale);
}

}  // namespace

int64_t scratchOfBackward16(const Context &context, const GatedLowRank &update, ConstAnyMatrix dy,
                            const GatedGradients &gradients) {
  if (!takes(update, dy, gradients) || (!gradients.v.data && !gradients.u.data)) return 0;
  return blocksFor(update, factsOf(context.device)) * (update.v.size() + update.u.size());
}

template <class T>
bool backward16(const Context &context, const GatedLowRank &update, ConstAnyMatrix dy,
                const GatedGradients &gradients) {
  if (!takes(update, dy, gradients)) return false;
  const CudaScope scope(context.device);
  const GpuFacts gpu = factsOf(context.device);
  Backward<T> p{static_cast<const T *>(update.x.data),
                update.x.rowStride,
                static_cast<const T *>(dy.data),
                dy.rowStride,
                Factor<T>(update.v),
                CodeReader<T>(update.codes),
                Factor<T>(update.u),
                static_cast<T *>(gradients.x.data),
                gradients.x.rowStride,
                gradients.codes,
                nullptr,
                static_cast<int>(update.x.rows),
                update.scale,
                gradients.x.size() * elementBytes(update.x.type) >= gpu.cacheBytes / 6};
  const int blocks = blocksFor(update, gpu);
  if (pulsora::max(update.x.cols, dy.cols) <= 256) {
    launchBackward<T, 2, 4>(context, p, gradients, blocks);
  } else {
    launchBackward<T, 4, 6>(context, p, gradients, blocks);
  }
  return true;
}

template bool backward16<Half>(const Context &, const GatedLowRank &, ConstAnyMatrix,
                               const GatedGradients &);
template bool backward16<BFloat16>(const Context &, const GatedLowRank &, ConstAnyMatrix,
                                   const GatedGradients &);

}  // namespace pulsora::lowrank
