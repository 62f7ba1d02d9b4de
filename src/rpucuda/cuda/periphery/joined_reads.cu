#include "cuda/core/launch.cuh"
#include "cuda/periphery/row_read.cuh"
#include "periphery/read_kernels.h"

namespace RPU {
namespace {

constexpr int kThreads = 512;

/// A block reads a row of the adapter's first array. Meanwhile the product of the large array may
/// run, whose inputs were ready before this kernel.
__global__ void __launch_bounds__(kThreads)
    readBesideKernel(const __grid_constant__ PlainRead first,
                     const __grid_constant__ PlainRead second) {
  __shared__ float results[kFewLines];
  awaitEarlier();
  letNextBegin();
  readRow<kThreads>(first, blockIdx.x, results);
  convertShortRow(second.input, blockIdx.x, results);
}

/// The first blocks each read a row of the adapter's first array; each other block converts a row
/// for the large array.
__global__ void __launch_bounds__(kThreads)
    convertBesideKernel(const __grid_constant__ InputStage large,
                        const __grid_constant__ PlainRead first,
                        const __grid_constant__ PlainRead second) {
  awaitEarlier();
  __shared__ float results[kFewLines];
  const int64_t rows = first.input.in.rows;
  if (blockIdx.x < rows) {
    readRow<kThreads>(first, blockIdx.x, results);
    convertShortRow(second.input, blockIdx.x, results);
  } else {
    const int64_t k = blockIdx.x - rows;
    measureTogether<kThreads>(large, large.list[k]);
    convertRow<kThreads>(large, k);
  }
}

}  // namespace

void cudaReadBeside(const Context &context, const PlainRead &first, const PlainRead &second) {
  const CudaScope scope(context.device);
  const auto rows = static_cast<unsigned>(first.input.in.rows);
  launch(context.stream, readBesideKernel, rows, kThreads, 0, first, second);
}

void cudaConvertBeside(const Context &context, const InputStage &large, const PlainRead &first,
                       const PlainRead &second) {
  const CudaScope scope(context.device);
  const auto blocks = static_cast<unsigned>(first.input.in.rows + large.list.count);
  launch(context.stream, convertBesideKernel, blocks, kThreads, 0, large, first, second);
}

}  // namespace RPU
