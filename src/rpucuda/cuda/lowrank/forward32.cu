#include "cuda/core/tensor_floats.cuh"
#include "cuda/lowrank/fragments.cuh"
#include "cuda/lowrank/updates.cuh"

// The update in single precision, by the resident kernel of forward16.cu with other tiles.

namespace pulsora::lowrank {
namespace {

constexpr int kColumns = 16;  // per step of a warp: lane t has 4 t to 4 t + 3

struct Forward {
  const float *x;
  int64_t xStride;
  Factor<float> v;
  CodeReader<float> codes;
  Factor<float> u;
  const float *base;
  int64_t baseStride;
  float *y;
  int64_t yStride;
  int rows;
  float scale;
  bool streams;
};

template <int kTiles, int kChunks, int kAlong, bool kAdds>
__global__ void __launch_bounds__(32 * kAlong, 1)
    residentKernel(const __grid_constant__ Forward p) {
  constexpr int kN = 8 * kTiles;
  __shared__ float shared[2][kAlong * kTileRows * kN];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int along = static_cast<int>(threadIdx.x) / 32;
  const int g = lane / 4, t = lane % 4;
  const int tiles = (p.rows + kTileRows - 1) / kTileRows;
  const int first = along * kChunks * kColumns;
  float4 x[kChunks][2];
  float2 codes[kTiles][2];
  const auto load = [&](int tile) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = min(tile * kTileRows + g + 8 * r, p.rows - 1);
      const float *from = p.x + row * p.xStride + t * 4;
#pragma unroll
      for (int k = 0; k < kChunks; ++k) {
        const int col = first + k * kColumns;
        x[k][r] = asFloats(col + t * 4 < p.v.rows ? readOnce(from + col) : make_uint4(0, 0, 0, 0));
      }
#pragma unroll
      for (int n = 0; n < kTiles; ++n) codes[n][r] = codesAt(p.codes, row, n * 8 + 2 * t, p.v.cols);
    }
  };
  awaitEarlier();
  int tile = static_cast<int>(blockIdx.x);
  if (tile < tiles) load(tile);
  float2 v[kChunks][2][kTiles], u[kChunks][2][kTiles];
#pragma unroll
  for (int k = 0; k < kChunks; ++k) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const int col = first + k * kColumns;
        const int ofV = col + t * 4 + 2 * j;
        const int ofU = col + (g >> 1) * 4 + j * 2 + (g & 1);
        v[k][j][n] = make_float2(p.v.at(ofV, n * 8 + g), p.v.at(ofV + 1, n * 8 + g));
        u[k][j][n] = make_float2(p.u.at(ofU, n * 8 + 2 * t), p.u.at(ofU, n * 8 + 2 * t + 1));
      }
    }
  }
  for (int buffer = 0; tile < tiles; tile += static_cast<int>(gridDim.x), buffer ^= 1) {
    const int rows[2] = {tile * kTileRows + g, tile * kTileRows + g + 8};
    float4 base[kAdds ? kChunks : 1][2];
    if constexpr (kAdds) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float *from = p.base + min(rows[r], p.rows - 1) * p.baseStride + t * 4;
#pragma unroll
        for (int k = 0; k < kChunks; ++k) {
          const int col = first + k * kColumns;
          if (col + t * 4 < p.u.rows)
            base[k][r] = __ldcg(reinterpret_cast<const float4 *>(from + col));
        }
      }
    }
    float h[kTiles][4] = {};
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        multiplyFloats(h[n], {x[k][0].x, x[k][0].y}, {x[k][1].x, x[k][1].y}, v[k][0][n]);
        multiplyFloats(h[n], {x[k][0].z, x[k][0].w}, {x[k][1].z, x[k][1].w}, v[k][1][n]);
      }
    }
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
    sumAlong<kTiles, kAlong, 1>(h, sum, shared[buffer], along, 0, g, t);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        sum[n][r].x *= gates[n][r].x;
        sum[n][r].y *= gates[n][r].y;
      }
    }
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
      float d[2][4] = {};
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int n = 0; n < kTiles; ++n) multiplyFloats(d[j], sum[n][0], sum[n][1], u[k][j][n]);
      }
      const int col = first + k * kColumns + t * 4;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (rows[r] >= p.rows || col >= p.u.rows) continue;
        float4 added = {0.0f, 0.0f, 0.0f, 0.0f};
        if constexpr (kAdds) added = base[k][r];
        const uint4 out = {__float_as_uint(fmaf(d[0][2 * r], p.scale, added.x)),
                           __float_as_uint(fmaf(d[0][2 * r + 1], p.scale, added.y)),
                           __float_as_uint(fmaf(d[1][2 * r], p.scale, added.z)),
                           __float_as_uint(fmaf(d[1][2 * r + 1], p.scale, added.w))};
        write(p.y + rows[r] * p.yStride + col, out, p.streams);
      }
    }
  }
}

template <int kTiles, int kChunks, int kAlong>
void launchResident(const Context &context, const Forward &p, int blocks) {
  const int tiles = (p.rows + kTileRows - 1) / kTileRows;
  const auto grid = static_cast<unsigned>(min(tiles, blocks));
  if (p.base) {
    launch(context.stream, residentKernel<kTiles, kChunks, kAlong, true>, grid, 32U * kAlong, 0, p);
  } else {
    launch(context.stream, residentKernel<kTiles, kChunks, kAlong, false>, grid, 32U * kAlong, 0,
           p);
  }
}

}  // namespace

bool forward32(const Context &context, const GatedLowRank &update, ConstAnyMatrix base,
               AnyMatrix y) {
  const int64_t columns = pulsora::max(update.x.cols, y.cols);
  const int64_t n = update.v.cols;
  const bool fits = (n <= 8 && columns <= 1024) || (n <= 16 && columns <= 768);
  if (!fits || n == 0 || context.gpuProducts == GpuProducts::Reproducible || !hasPieces(update.x) ||
      !hasPieces(y) || (base.data && !hasPieces(base)) || !isCountable(y.rows)) {
    return false;
  }
  const CudaScope scope(context.device);
  const GpuFacts gpu = factsOf(context.device);
  const Forward p{static_cast<const float *>(update.x.data),
                  update.x.rowStride,
                  Factor<float>(update.v),
                  CodeReader<float>(update.codes),
                  Factor<float>(update.u),
                  static_cast<const float *>(base.data),
                  base.rowStride,
                  static_cast<float *>(y.data),
                  y.rowStride,
                  static_cast<int>(y.rows),
                  update.scale,
                  y.size() * elementBytes(y.type) >= gpu.cacheBytes / 6};
  if (n > 8) {
    launchResident<2, 4, 12>(context, p, gpu.processors);
  } else if (columns <= 256) {
    launchResident<1, 2, 8>(context, p, 4 * gpu.processors);
  } else if (columns <= 768) {
    launchResident<1, 4, 12>(context, p, 4 * gpu.processors);
  } else {
    launchResident<1, 4, 16>(context, p, gpu.processors);
  }
  return true;
}

}  // namespace pulsora::lowrank
