#include "adapter_kernels.h"

#include "cuda/check.cuh"
#include "cuda/row_read.cuh"
#include "cuda/train_scales.cuh"

namespace RPU {
namespace {

constexpr int kThreads = 512;
constexpr int64_t kCopiedPerBlock = 8 * kThreads;

__device__ void convertRow(const InputStage &s, int64_t row) {
  measureTogether<kThreads>(s, row);
  float *converted = s.converted + row * s.in.cols;
  convertInputs(s, row, threadIdx.x, s.in.cols, kThreads, s.state.scale[row], 0,
                [&](int64_t j, float value) { converted[j] = value; });
}

/// The largest of `count` |values|, in the lanes of the first warp; a value that is not finite sets
/// the fault word.
__device__ float largestOf(const float (&values)[kFewLines], int64_t count, uint32_t *fault) {
  float largest = 0.0f;
  if (threadIdx.x >= 32) return largest;
  for (int64_t k = threadIdx.x; k < count; k += 32) {
    largest = RPU::max(largest, RPU::abs(values[k]));
    if (!isFinite(values[k]) && fault) *fault = 1;
  }
  for (int half = 16; half > 0; half /= 2)
    largest = RPU::max(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, half));
  return largest;
}

/// Measures and converts a short row, which is also in shared memory; by the first warp.
__device__ void convertShortRow(const InputStage &s, int64_t row,
                                const float (&values)[kFewLines]) {
  if (threadIdx.x >= 32) return;
  const float largest = largestOf(values, s.in.cols, s.fault);
  float scale = 0.0f;
  if (threadIdx.x == 0) {
    prepareRow(s, row, s.in.row(row), largest);
    scale = noiseScale(s.rule, s.in.row(row), largest);
  }
  scale = __shfl_sync(0xFFFFFFFFU, scale, 0);
  float *converted = s.converted + row * s.in.cols;
  convertInputs(s, row, threadIdx.x, s.in.cols, 32, scale, 0,
                [&](int64_t k, float value) { converted[k] = value; });
}

/// The first blocks take a row of the adapter's read each, the others one of the wide read.
__global__ void __launch_bounds__(kThreads, 1)
    readFirstKernel(const __grid_constant__ PlainRead first,
                    const __grid_constant__ PlainRead second,
                    const __grid_constant__ InputStage wide) {
  __shared__ float results[kFewLines];
  const int64_t rows = first.input.in.rows;
  if (blockIdx.x < rows) {
    readRow<kThreads>(first, blockIdx.x, results);
    convertShortRow(second.input, blockIdx.x, results);
  } else {
    convertRow(wide, blockIdx.x - rows);
  }
}

__device__ void copyPiece(const MatrixCopy &copy, int64_t piece, int64_t pieces) {
  const int64_t stride = pieces * kThreads;
  for (int64_t i = piece * kThreads + threadIdx.x; i < copy.from.size(); i += stride)
    copy.to[i] = copy.from(i / copy.from.cols, i % copy.from.cols);
}

/// A row of g per block, then a row of e per block, then copies. The block that finishes last
/// scales the trains.
__global__ void __launch_bounds__(kThreads, 1)
    projectKernel(const __grid_constant__ AdapterProjection p) {
  __shared__ float results[kFewLines];
  const int64_t rows = p.g.input.in.rows;
  if (blockIdx.x >= 2 * rows) {
    const int64_t piece = blockIdx.x - 2 * rows;
    for (const MatrixCopy &copy : p.copies) copyPiece(copy, piece, gridDim.x - 2 * rows);
    return;
  }
  const bool isG = blockIdx.x < rows;
  const int64_t row = isG ? blockIdx.x : blockIdx.x - rows;
  const PlainRead &read = isG ? p.g : p.e;
  const float in = readRow<kThreads>(read, row, results);
  const float out = largestOf(results, read.weights.rows, p.a.maxima.fault);
  if (threadIdx.x == 0) {
    (isG ? p.b.maxima.x : p.a.maxima.d)[row] = in;
    (isG ? p.a.maxima.x : p.b.maxima.d)[row] = out;
  }
  if (!finishesLast(p.a.maxima.finished, static_cast<unsigned>(2 * rows))) return;
#pragma unroll 1
  for (int job = 0; job < 2; ++job) scaleAll<kThreads>(rows, job == 0 ? p.a : p.b);
}

}  // namespace

void cudaReadFirst(const Context &context, const PlainRead &first, const PlainRead &second,
                   const InputStage *wide) {
  const CudaScope scope(context.device);
  const auto rows = static_cast<unsigned>(first.input.in.rows);
  readFirstKernel<<<wide ? 2 * rows : rows, kThreads, 0, streamOf(context)>>>(
      first, second, wide ? *wide : InputStage{});
  RPU_CUDA(cudaGetLastError());
}

void cudaProject(const Context &context, const AdapterProjection &p) {
  const CudaScope scope(context.device);
  const auto rows = static_cast<unsigned>(p.g.input.in.rows);
  const int64_t copied = p.copies[0].from.size() + p.copies[1].from.size();
  const unsigned pieces = gridFor(copied, kCopiedPerBlock, 64);
  projectKernel<<<2 * rows + pieces, kThreads, 0, streamOf(context)>>>(p);
  RPU_CUDA(cudaGetLastError());
}

}  // namespace RPU
