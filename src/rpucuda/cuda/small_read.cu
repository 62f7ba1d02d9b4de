#include "cuda/check.cuh"
#include "cuda/measure.cuh"

// Reads of small arrays, such as the factors of an adapter, in one launch: a block takes a row of
// the mini-batch from its measurement to the last repetition. Each block reads all weights, which
// then come from the second-level cache.

namespace RPU {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kOutputsPerWarp = 4;

/// Piece `index` of [0, size) cut into `pieces`.
struct Piece {
  int64_t begin;
  int64_t end;
  __device__ Piece(int64_t size, int pieces, int index)
      : begin(size * index / pieces), end(size * (index + 1) / pieces) {}
};

/// Lanes along the inputs, a few outputs per warp: sum(i) over a piece of the inputs, in lane 0.
template <class Store>
__device__ void sumAlongInputs(MatrixView<const float> w, const float *in, int64_t first,
                               Piece inputs, const Store &store) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float sum[kOutputsPerWarp] = {};
  const float *row[kOutputsPerWarp];
  for (int q = 0; q < kOutputsPerWarp; ++q)
    row[q] = w.data + (first + q < w.rows ? first + q : first) * w.rowStride;
#pragma unroll 4
  for (int64_t j = inputs.begin + lane; j < inputs.end; j += 32) {
    const float u = in[j];
#pragma unroll
    for (int q = 0; q < kOutputsPerWarp; ++q) sum[q] = RPU::fma(row[q][j * w.colStride], u, sum[q]);
  }
#pragma unroll
  for (int q = 0; q < kOutputsPerWarp; ++q) {
    for (int half = 16; half > 0; half /= 2) sum[q] += __shfl_down_sync(0xFFFFFFFFU, sum[q], half);
    if (lane == 0 && first + q < w.rows) store(first + q, sum[q]);
  }
}

/// A lane per output.
template <class Store>
__device__ void sumPerLane(MatrixView<const float> w, const float *in, int64_t first, Piece inputs,
                           const Store &store) {
  const int64_t i = first + static_cast<int>(threadIdx.x) % 32;
  if (i >= w.rows) return;
  const float *row = w.data + i * w.rowStride;
  float sum = 0.0f;
#pragma unroll 16
  for (int64_t j = inputs.begin; j < inputs.end; ++j)
    sum = RPU::fma(row[j * w.colStride], in[j], sum);
  store(i, sum);
}

/// sums = w in. Warps share the outputs and, if those are few, the inputs as well.
__device__ void multiplyRow(MatrixView<const float> w, const float *in, float *sums) {
  __shared__ float partial[kThreads];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const bool perLane = (w.rowStride == 1 && w.rows >= 32) || w.cols <= 64;
  const int width = perLane ? 32 : kOutputsPerWarp;
  const int64_t groups = (w.rows + width - 1) / width;
  const int pieces = groups >= kWarps ? 1 : kWarps / static_cast<int>(groups);
  const auto sum = [&](int64_t group, int piece, const auto &store) {
    const Piece inputs(w.cols, pieces, piece);
    if (perLane) {
      sumPerLane(w, in, group * width, inputs, store);
    } else {
      sumAlongInputs(w, in, group * width, inputs, store);
    }
  };
  if (pieces == 1) {
    for (int64_t group = warp; group < groups; group += kWarps) {
      sum(group, 0, [&](int64_t i, float value) { sums[i] = value; });
    }
    return;
  }
  const int piece = warp / static_cast<int>(groups);
  const int64_t span = groups * width;  // at most kThreads / pieces outputs
  if (piece < pieces) {
    sum(warp % groups, piece, [&](int64_t i, float value) { partial[piece * span + i] = value; });
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < w.rows; i += kThreads) {
    float total = 0.0f;
    for (int p = 0; p < pieces; ++p) total += partial[p * span + i];
    sums[i] = total;
  }
}

__global__ void __launch_bounds__(kThreads, 1) readRowsKernel(PlainRead r) {
  const ConvertInput convert{r.input};
  const FinishOutput finish{r.output};
  const NextRead prepare{r.input.state};
  for (int64_t row = blockIdx.x; row < r.input.in.rows; row += gridDim.x) {
    measureTogether<kThreads>(r.input, row);
    for (int round = 0;; ++round) {
      for (int64_t j = threadIdx.x; j < r.input.in.cols; j += kThreads) convert.convert(row, j);
      __syncthreads();
      multiplyRow(r.weights, r.input.converted + row * r.input.in.cols,
                  r.sums + row * r.weights.rows);
      __syncthreads();
      for (int64_t line = threadIdx.x; line < r.output.out.cols; line += kThreads)
        finish.finish(row, line);
      __syncthreads();
      if (round == r.repeats || r.input.state.clipped[row] == 0) break;
      __syncthreads();
      if (threadIdx.x == 0) prepare(row);
      __syncthreads();
    }
  }
}

}  // namespace

void cudaReadRows(const Context &context, const PlainRead &read) {
  const CudaScope scope(context.device);
  readRowsKernel<<<gridFor(read.input.in.rows, 1), kThreads, 0, streamOf(context)>>>(read);
  RPU_CUDA(cudaGetLastError());
}

}  // namespace RPU
