#include "core/buffer.h"
#include "cuda/core/tensor_floats.cuh"
#include "cuda/lowrank/fragments.cuh"
#include "cuda/lowrank/updates.cuh"
#include "linalg/math_util.h"
#include "lowrank/widened.h"

// A layer in single precision with its update, as one product of cuBLAS:
//
//     y = [x | h | 1] [weight | u | bias]^T    where h = scale (x v) .* codes.
//
// One kernel before the product reads x once, computes h, and writes [x | h | 1] and the right
// factor. That moves 8 M K1 bytes; adding the update to a result would move 4 M (K1 + 2 K2).

namespace pulsora::lowrank {
namespace {

constexpr int kWarps = 8;
constexpr int kRowTiles = 2;  // tiles of 16 rows that a warp multiplies with the same part of v
constexpr int kRows = kRowTiles * kTileRows;
constexpr int kStep = 16;  // columns per step of a warp: lane t has 4 t to 4 t + 3
constexpr int kThreads = 32 * kWarps;

struct Stacked {
  const float *x;
  int64_t xStride;
  Factor<float> v;
  CodeReader<float> codes;
  Factor<float> u;
  const float *weight;
  int64_t weightRowStride, weightColStride;
  const float *bias;
  int64_t biasStride;
  float *left;   // [rows, width]
  float *right;  // [K2, width]
  int width;     // K1, then N and 1 rounded up
  int rows;
  int64_t batchRow;  // first of these rows in the batch
  int rowBlocks;
  float scale;
};

/// [x | h | 1] for kRows rows.
template <int kTiles>
__device__ void stackLeft(const Stacked &p, int block) {
  __shared__ float shared[kRowTiles][kWarps][kTileRows][8 * kTiles];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int g = lane / 4, t = lane % 4;
  const int first = block * kRows;
  float h[kRowTiles][kTiles][4] = {};
#pragma unroll(2)
  for (int col = warp * kStep; col < p.v.rows; col += kWarps * kStep) {
    const int at = col + 4 * t;
    float4 x[kRowTiles][2];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = first + i * kTileRows + g + 8 * r;
        const uint4 piece = at < p.v.rows ? readOnce(p.x + min(row, p.rows - 1) * p.xStride + at)
                                          : make_uint4(0, 0, 0, 0);
        x[i][r] = asFloats(piece);
        if (at < p.v.rows && row < p.rows)
          *reinterpret_cast<uint4 *>(p.left + static_cast<int64_t>(row) * p.width + at) = piece;
      }
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const int of = n * 8 + g;
      const float2 upper = make_float2(p.v.at(at, of), p.v.at(at + 1, of));
      const float2 lower = make_float2(p.v.at(at + 2, of), p.v.at(at + 3, of));
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        float part[4] = {};
        multiplyFloats(part, {x[i][0].x, x[i][0].y}, {x[i][1].x, x[i][1].y}, upper);
        multiplyFloats(part, {x[i][0].z, x[i][0].w}, {x[i][1].z, x[i][1].w}, lower);
#pragma unroll
        for (int e = 0; e < 4; ++e) h[i][n][e] += part[e];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        shared[i][warp][g + e / 2 * 8][n * 8 + 2 * t + e % 2] = h[i][n][e];
    }
  }
  __syncthreads();
  // The sums of the warps, in fixed order, gated.
  const int extra = p.width - p.v.rows;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * extra; i += kThreads) {
    const int row = first + i / extra, n = i % extra;
    if (row >= p.rows) break;
    float value = n == p.v.cols && p.bias ? 1.0f : 0.0f;
    if (n < p.v.cols) {
      const int inTile = i / extra;
      for (int w = 0; w < kWarps; ++w)
        value += shared[inTile / kTileRows][w][inTile % kTileRows][n];
      value *= p.codes.at(p.batchRow + row, n) * p.scale;
    }
    p.left[static_cast<int64_t>(row) * p.width + p.v.rows + n] = value;
  }
}

/// [weight | u | bias], row by row.
__device__ void stackRight(const Stacked &p, int block, int blocks) {
  const bool inPieces = p.weightColStride == 1 && p.weightRowStride % 4 == 0 &&
                        reinterpret_cast<uintptr_t>(p.weight) % 16 == 0;
  for (int row = block; row < p.u.rows; row += blocks) {
    const float *from = p.weight + row * p.weightRowStride;
    float *to = p.right + static_cast<int64_t>(row) * p.width;
    if (inPieces) {
      for (int i = static_cast<int>(threadIdx.x); i < p.v.rows / 4; i += kThreads)
        reinterpret_cast<uint4 *>(to)[i] = __ldg(reinterpret_cast<const uint4 *>(from) + i);
    } else {
      for (int i = static_cast<int>(threadIdx.x); i < p.v.rows; i += kThreads)
        to[i] = from[i * p.weightColStride];
    }
    const int n = static_cast<int>(threadIdx.x);
    if (n < p.width - p.v.rows) {
      const float added = n == p.v.cols && p.bias ? p.bias[row * p.biasStride] : 0.0f;
      to[p.v.rows + n] = n < p.v.cols ? p.u.at(row, n) : added;
    }
  }
}

template <int kTiles>
__global__ void __launch_bounds__(kThreads, 2) stackKernel(const __grid_constant__ Stacked p) {
  awaitEarlier();
  const int block = static_cast<int>(blockIdx.x);
  if (block < p.rowBlocks) {
    stackLeft<kTiles>(p, block);
  } else {
    stackRight(p, block - p.rowBlocks, static_cast<int>(gridDim.x) - p.rowBlocks);
  }
}

}  // namespace

bool canStack32(const Context &context, const GatedLowRank &update, ConstAnyMatrix weight,
                ConstAnyMatrix y) {
  const int64_t n = update.v.cols;
  if (!multiplies(factsOf(context.device), ElementType::Float32)) return false;
  return n > 0 && n <= 16 && context.gpuProducts != GpuProducts::Reproducible &&
         update.x.cols > 0 && hasPieces(update.x) && isCountable(y.rows) && isCountable(y.cols) &&
         isCountable(update.x.cols) && weight.data;
}

bool stacking32Pays(const GatedLowRank &update) {
  // On an H200 it took 0.78 to 1.02 of the time of two passes in 31 shapes of at least 1024 rows,
  // and up to 1.16 for 512 rows, where copying the right factor costs more than it saves
  // (benchmarks/NOTES.md).
  return update.x.rows >= 1024 && update.x.cols >= 256 && update.u.rows >= 256;
}

void stacked32(const Context &context, const GatedLowRank &update, ConstAnyMatrix weight,
               ConstAnyMatrix bias, AnyMatrix y) {
  const int64_t m = update.x.rows, k1 = update.x.cols, n = update.v.cols, k2 = y.cols;
  const int64_t width = k1 + (n + (bias.data ? 1 : 0) + 7) / 8 * 8;
  const CudaScope scope(context.device);
  const int64_t atATime = pulsora::min(m, rowsAtATime(context, width));  // within bounds of memory
  Buffer<float> left(context, atATime * width), right(context, k2 * width);
  for (int64_t begin = 0; begin < m; begin += atATime) {
    const int64_t count = pulsora::min(atATime, m - begin);
    const int64_t rowBlocks = (count + kRows - 1) / kRows;
    const Stacked p{static_cast<const float *>(update.x.data) + begin * update.x.rowStride,
                    update.x.rowStride,
                    Factor<float>(update.v),
                    CodeReader<float>(update.codes),
                    Factor<float>(update.u),
                    static_cast<const float *>(weight.data),
                    weight.rowStride,
                    weight.colStride,
                    static_cast<const float *>(bias.data),
                    bias.colStride,
                    left.data(),
                    right.data(),
                    static_cast<int>(width),
                    static_cast<int>(count),
                    begin,
                    static_cast<int>(rowBlocks),
                    update.scale};
    // The launch for the first rows also makes the right factor.
    const int64_t ofRight =
        begin == 0 ? pulsora::min(k2, int64_t{8} * factsOf(context.device).processors) : 0;
    const auto blocks = static_cast<unsigned>(rowBlocks + ofRight);
    launch(context.stream, n <= 8 ? &stackKernel<1> : &stackKernel<2>, blocks, kThreads, 0, p);
    gemm(context, 1.0f, rowMajor<const float>(left.data(), count, width),
         rowMajor<const float>(right.data(), k2, width).transposed(), 0.0f,
         y.rowRange(begin, count).as<float>());
  }
}

}  // namespace pulsora::lowrank
