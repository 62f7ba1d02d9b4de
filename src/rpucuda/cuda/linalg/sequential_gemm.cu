#include "cuda/core/launch.cuh"
#include "cuda/linalg/sequential_gemm.cuh"
#include "numerics/math.h"

namespace pulsora {
namespace {

// A block makes a tile of C from slices of kDepth products in shared memory. A thread makes as many
// rows as columns of it: rows in groups of kQuad neighbours, which one access reads from a slice,
// and columns kSide apart, so that neighbouring threads read and write neighbouring columns.
constexpr int kDepth = 16;
constexpr int kSide = 16;
constexpr int kThreads = kSide * kSide;
constexpr int kQuad = 4;
constexpr int kSmallTile = 64;
constexpr int kLargeTile = 128;
constexpr int64_t kManyTiles = 256;  // so many large tiles keep the card busy

struct Product {
  float alpha;
  MatrixView<const float> a;
  MatrixView<const float> b;
  float beta;
  MatrixView<float> c;
  bool accumulate;
  const uint32_t *skip;
};

template <int kTile>
struct Slice {
  alignas(16) float values[kDepth][kTile + kQuad];  // padded against bank conflicts
};

/// Rows [row0, row0 + kTile) and columns [k0, k0 + depth) of a matrix on the way to a slice, where
/// they are transposed; elements outside the matrix are 0. Consecutive threads take adjacent
/// elements. A slice is fetched while the one before it is used.
template <int kTile>
struct SliceFetch {
  static constexpr int kEach = kTile * kDepth / kThreads;

  float values[kEach];

  __device__ void fetch(const MatrixView<const float> &m, int64_t row0, int64_t k0, int depth) {
    const bool alongRow = m.colStride == 1;
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int row = rowOf(e, alongRow);
      const int k = depthOf(e, alongRow);
      values[e] = row0 + row < m.rows && k < depth ? m(row0 + row, k0 + k) : 0.0f;
    }
  }
  __device__ void store(const MatrixView<const float> &m, Slice<kTile> &slice) const {
    const bool alongRow = m.colStride == 1;
#pragma unroll
    for (int e = 0; e < kEach; ++e)
      slice.values[depthOf(e, alongRow)][rowOf(e, alongRow)] = values[e];
  }

 private:
  __device__ static int rowOf(int e, bool alongRow) {
    const int i = static_cast<int>(threadIdx.x) + e * kThreads;
    return alongRow ? i / kDepth : i % kTile;
  }
  __device__ static int depthOf(int e, bool alongRow) {
    const int i = static_cast<int>(threadIdx.x) + e * kThreads;
    return alongRow ? i % kDepth : i / kTile;
  }
};

template <int kTile>
__global__ void __launch_bounds__(kThreads, kTile == kSmallTile ? 3 : 2)
    sequentialGemmKernel(const __grid_constant__ Product p) {
  constexpr int kPerThread = kTile / kSide;
  awaitEarlier();
  __shared__ Slice<kTile> aSlice;
  __shared__ Slice<kTile> bSlice;
  if (p.skip && *p.skip != 0) return;
  const int64_t row0 = static_cast<int64_t>(blockIdx.y) * kTile;
  const int64_t col0 = static_cast<int64_t>(blockIdx.x) * kTile;
  const int ty = static_cast<int>(threadIdx.x) / kSide;
  const int tx = static_cast<int>(threadIdx.x) % kSide;
  const MatrixView<const float> bT = p.b.transposed();
  const auto rowOf = [&](int i) { return i / kQuad * (kQuad * kSide) + kQuad * ty + i % kQuad; };
  const auto colOf = [&](int j) { return tx + j * kSide; };
  float acc[kPerThread][kPerThread];
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      const int64_t row = row0 + rowOf(i);
      const int64_t col = col0 + colOf(j);
      acc[i][j] = p.accumulate && row < p.c.rows && col < p.c.cols ? p.c(row, col) : 0.0f;
    }
  }
  // Never beyond the last product: adding 0 * 0 would turn a sum of -0 into +0.
  const auto depthAt = [&](int64_t k0) {
    return static_cast<int>(p.a.cols - k0 < kDepth ? p.a.cols - k0 : kDepth);
  };
  SliceFetch<kTile> nextA;
  SliceFetch<kTile> nextB;
  nextA.fetch(p.a, row0, 0, depthAt(0));
  nextB.fetch(bT, col0, 0, depthAt(0));
  for (int64_t k0 = 0; k0 < p.a.cols; k0 += kDepth) {
    const int depth = depthAt(k0);
    nextA.store(p.a, aSlice);
    nextB.store(bT, bSlice);
    __syncthreads();
    if (k0 + kDepth < p.a.cols) {
      nextA.fetch(p.a, row0, k0 + kDepth, depthAt(k0 + kDepth));
      nextB.fetch(bT, col0, k0 + kDepth, depthAt(k0 + kDepth));
    }
#pragma unroll 4
    for (int k = 0; k < depth; ++k) {
      float a[kPerThread];
      float b[kPerThread];
#pragma unroll
      for (int i = 0; i < kPerThread; i += kQuad) {
        const auto quad = *reinterpret_cast<const float4 *>(&aSlice.values[k][rowOf(i)]);
        a[i] = quad.x;
        a[i + 1] = quad.y;
        a[i + 2] = quad.z;
        a[i + 3] = quad.w;
      }
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) b[j] = bSlice.values[k][colOf(j)];
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) {
#pragma unroll
        for (int j = 0; j < kPerThread; ++j) acc[i][j] = pulsora::fma(a[i], b[j], acc[i][j]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      const int64_t row = row0 + rowOf(i);
      const int64_t col = col0 + colOf(j);
      if (row >= p.c.rows || col >= p.c.cols) continue;
      float &c = p.c(row, col);
      if (p.accumulate) {
        c = acc[i][j];
      } else {
        c = p.beta == 0.0f ? p.alpha * acc[i][j] : pulsora::fma(p.alpha, acc[i][j], p.beta * c);
      }
    }
  }
}

}  // namespace

void cudaSequentialGemm(const Context &context, float alpha, MatrixView<const float> a,
                        MatrixView<const float> b, float beta, MatrixView<float> c, bool accumulate,
                        const uint32_t *skip) {
  if (c.size() == 0) return;
  // Columns of C run along the threads; choose the orientation in which they are adjacent in
  // memory. (fma(a, b, acc) is symmetric.)
  Product p{alpha, a, b, beta, c, accumulate, skip};
  if (!c.isRowMajor() && c.isColMajor())
    p = {alpha, b.transposed(), a.transposed(), beta, c.transposed(), accumulate, skip};
  const auto tiles = [](int64_t lines, int tile) { return (lines + tile - 1) / tile; };
  const bool isLarge = tiles(p.c.rows, kLargeTile) * tiles(p.c.cols, kLargeTile) >= kManyTiles;
  const int64_t down = tiles(p.c.rows, isLarge ? kLargeTile : kSmallTile);
  const int64_t across = tiles(p.c.cols, isLarge ? kLargeTile : kSmallTile);
  PULSORA_CHECK(InputError, down < 65536 && across <= INT32_MAX, "a product of ", p.c.rows,
                " rows is more than the GPU takes; ", "use smaller batches");
  const CudaScope scope(context.device);
  launch(context.stream,
         isLarge ? &sequentialGemmKernel<kLargeTile> : &sequentialGemmKernel<kSmallTile>,
         dim3(static_cast<unsigned>(across), static_cast<unsigned>(down)), kThreads, 0, p);
}

}  // namespace pulsora
