#include "cuda/core/launch.cuh"
#include "cuda/periphery/row_read.cuh"
#include "periphery/read_kernels.h"

namespace RPU {
namespace {

constexpr int kThreads = 512;

/// The reads of an adapter's two arrays, beside that of a large one.
struct ReadsBeside {
  InputStage large;
  PlainRead first;
  PlainRead second;
};

/// A block reads a row of the adapter's first array. Meanwhile the product of the large array may
/// run, whose inputs were ready before this kernel.
template <int kJobs>
__global__ void __launch_bounds__(kThreads)
    readBesideKernel(const __grid_constant__ Jobs<ReadsBeside, kJobs> jobs) {
  __shared__ float results[kFewLines];
  const auto &[large, first, second] = jobs.ofBlock();
  awaitEarlier();
  letNextBegin();
  readRow<kThreads>(first, blockIdx.x, results);
  convertShortRow(second.input, blockIdx.x, results);
}
constexpr JobKernel<ReadsBeside> kReadBesideKernel = {&readBesideKernel<1>,
                                                      &readBesideKernel<kMostJobs<ReadsBeside>>};

/// The first blocks each read a row of the adapter's first array; each other block converts a row
/// for the large array.
template <int kJobs>
__global__ void __launch_bounds__(kThreads)
    convertBesideKernel(const __grid_constant__ Jobs<ReadsBeside, kJobs> jobs) {
  awaitEarlier();
  __shared__ float results[kFewLines];
  const auto &[large, first, second] = jobs.ofBlock();
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
constexpr JobKernel<ReadsBeside> kConvertBesideKernel = {
    &convertBesideKernel<1>, &convertBesideKernel<kMostJobs<ReadsBeside>>};

}  // namespace

void cudaReadBeside(const Context &context, const PlainRead &first, const PlainRead &second) {
  const CudaScope scope(context.device);
  const auto rows = static_cast<unsigned>(first.input.in.rows);
  launchJob(context.stream, kReadBesideKernel, rows, kThreads, 0, ReadsBeside{{}, first, second});
}

void cudaConvertBeside(const Context &context, const InputStage &large, const PlainRead &first,
                       const PlainRead &second) {
  const CudaScope scope(context.device);
  const auto blocks = static_cast<unsigned>(first.input.in.rows + large.list.count);
  launchJob(context.stream, kConvertBesideKernel, blocks, kThreads, 0,
            ReadsBeside{large, first, second});
}

}  // namespace RPU
