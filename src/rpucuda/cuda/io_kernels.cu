#include <cooperative_groups.h>

#include "core/backend.h"
#include "cuda/check.cuh"
#include "cuda/measure.cuh"

// The stages of a read on the GPU, made of the element functors of io_elements.h.

namespace RPU {
namespace {

constexpr int kConvertThreads = 512;

/// A block per row, so that it is measured and converted in one launch.
__global__ void __launch_bounds__(kConvertThreads) convertKernel(InputStage s, bool measureFirst) {
  const ConvertInput convert{s};
  const int64_t n = s.in.cols;
  for (int64_t k = blockIdx.x; k < s.list.count; k += gridDim.x) {
    if (measureFirst) measureTogether<kConvertThreads>(s, s.list[k]);
    for (int64_t j = threadIdx.x; j < n; j += kConvertThreads) convert.convert(k, j);
  }
}

__global__ void __launch_bounds__(kConvertThreads) measureKernel(InputStage s) {
  for (int64_t i = blockIdx.x; i < s.in.rows; i += gridDim.x)
    measureTogether<kConvertThreads>(s, i);
}

constexpr int kFinishThreads = 128;

/// blockIdx.y is the entry of the list.
__global__ void __launch_bounds__(kFinishThreads) finishKernel(OutputStage s) {
  const int64_t line = static_cast<int64_t>(blockIdx.x) * kFinishThreads + threadIdx.x;
  if (line >= s.out.cols) return;
  const FinishOutput finish{s};
  for (int64_t k = blockIdx.y; k < s.list.count; k += gridDim.y) finish.finish(k, line);
}

// --- rows that left the range of the ADC
// --------------------------------------------------------------------------------

constexpr int kRepeatThreads = 256;
constexpr int kRepeatBlocksPerSm = 2;
constexpr int kTile =
    32;  // rows and outputs of a block's piece of the product, and products per slice
constexpr int kPerThread = kTile * kTile / kRepeatThreads;

using Slice = float[kTile][kTile + 1];

/// m(row0 + i, k0 + k) at slice[k][i]; 0 outside.
__device__ void loadSlice(MatrixView<const float> m, int64_t row0, int64_t k0, Slice &slice) {
  const bool alongRow = m.colStride == 1;
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kTile; i += kRepeatThreads) {
    const int row = alongRow ? i / kTile : i % kTile;
    const int k = alongRow ? i % kTile : i / kTile;
    slice[k][row] = row0 + row < m.rows && k0 + k < m.cols ? m(row0 + row, k0 + k) : 0.0f;
  }
}

/// sums = inputs weights^T, piece by piece over all blocks.
__device__ void multiplyTogether(MatrixView<const float> inputs, MatrixView<const float> weights,
                                 float *sums) {
  __shared__ Slice inputSlice;
  __shared__ Slice weightSlice;
  const int64_t across = (weights.rows + kTile - 1) / kTile;
  const int64_t pieces = across * ((inputs.rows + kTile - 1) / kTile);
  const int column = static_cast<int>(threadIdx.x) % kTile;
  const int firstRow = static_cast<int>(threadIdx.x) / kTile * kPerThread;
  for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const int64_t row0 = piece / across * kTile;
    const int64_t line0 = piece % across * kTile;
    float acc[kPerThread] = {};
    for (int64_t k0 = 0; k0 < inputs.cols; k0 += kTile) {
      __syncthreads();
      loadSlice(inputs, row0, k0, inputSlice);
      loadSlice(weights, line0, k0, weightSlice);
      __syncthreads();
#pragma unroll 8
      for (int k = 0; k < kTile; ++k) {
        const float w = weightSlice[k][column];
#pragma unroll
        for (int i = 0; i < kPerThread; ++i)
          acc[i] = RPU::fma(inputSlice[k][firstRow + i], w, acc[i]);
      }
    }
    for (int i = 0; i < kPerThread; ++i) {
      const int64_t row = row0 + firstRow + i;
      const int64_t line = line0 + column;
      if (row < inputs.rows && line < weights.rows) sums[row * weights.rows + line] = acc[i];
    }
  }
}

/// The same on every block, as long as nobody writes `clipped`.
__device__ bool anyClipped(const RowState &state, int64_t rows) {
  int any = 0;
  for (int64_t i = threadIdx.x; i < rows; i += kRepeatThreads) any |= state.clipped[i];
  return __syncthreads_or(any) != 0;
}

/// Lists the rows to be read again and prepares them. For one block.
__device__ void listClipped(const PlainRead &r) {
  __shared__ int32_t count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  const NextRead prepare{r.input.state};
  for (int64_t i = threadIdx.x; i < r.input.in.rows; i += kRepeatThreads) {
    if (r.input.state.clipped[i] == 0) continue;
    r.list[atomicAdd(&count, 1)] = static_cast<int32_t>(i);
    prepare(i);
  }
  __syncthreads();
  if (threadIdx.x == 0) *r.count = count;
}

/// Bound management in one launch: the grid goes on, round by round, as long as a row leaves the
/// range of the ADC, so that the host need not know. Usually none does, and every block returns at
/// once.
__global__ void __launch_bounds__(kRepeatThreads, kRepeatBlocksPerSm) repeatKernel(PlainRead r) {
  const auto grid = cooperative_groups::this_grid();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kRepeatThreads + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kRepeatThreads;
  for (int round = 0; round < r.repeats; ++round) {
    if (!anyClipped(r.input.state, r.input.in.rows)) return;
    grid.sync();
    if (blockIdx.x == 0) listClipped(r);
    grid.sync();
    InputStage input = r.input;
    OutputStage output = r.output;
    input.list = output.list = {r.list, *r.count};
    const int64_t count = input.list.count;
    const ConvertInput convert{input};
    for (int64_t i = first; i < count * input.in.cols; i += stride) convert(i);
    grid.sync();
    if (input.sums || input.squares) {
      for (int64_t i = first; i < count; i += stride) sumConverted(input, i);
    }
    multiplyTogether(rowMajor<const float>(input.converted, count, input.in.cols), r.weights,
                     r.sums);
    grid.sync();
    const FinishOutput finish{output};
    for (int64_t i = first; i < count * output.out.cols; i += stride) finish(i);
    grid.sync();
  }
}

}  // namespace

void cudaMeasureInputs(const Context &context, const InputStage &stage) {
  const CudaScope scope(context.device);
  measureKernel<<<gridFor(stage.in.rows, 1), kConvertThreads, 0, streamOf(context)>>>(stage);
  RPU_CUDA(cudaGetLastError());
}

void cudaConvertInputs(const Context &context, const InputStage &stage, bool measureFirst) {
  const CudaScope scope(context.device);
  convertKernel<<<gridFor(stage.list.count, 1), kConvertThreads, 0, streamOf(context)>>>(
      stage, measureFirst);
  RPU_CUDA(cudaGetLastError());
  if (stage.sums || stage.squares)
    forEach(context, stage.passes * stage.list.count, SumConverted{stage});
}

void cudaFinishOutputs(const Context &context, const OutputStage &stage) {
  const CudaScope scope(context.device);
  const int64_t count = stage.list.count;
  const dim3 grid(gridFor(stage.out.cols, kFinishThreads),
                  static_cast<unsigned>(count < 65535 ? count : 65535));
  finishKernel<<<grid, kFinishThreads, 0, streamOf(context)>>>(stage);
  RPU_CUDA(cudaGetLastError());
}

void cudaRepeatReads(const Context &context, const PlainRead &read) {
  const CudaScope scope(context.device);
  int multiprocessors = 0;
  RPU_CUDA(
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, context.device));
  PlainRead argument = read;
  void *arguments[] = {&argument};
  RPU_CUDA(
      cudaLaunchCooperativeKernel(reinterpret_cast<const void *>(&repeatKernel),
                                  dim3(static_cast<unsigned>(multiprocessors * kRepeatBlocksPerSm)),
                                  dim3(kRepeatThreads), arguments, 0, streamOf(context)));
}

}  // namespace RPU
