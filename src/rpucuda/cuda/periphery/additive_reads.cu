#include "cuda/core/launch.cuh"
#include "cuda/periphery/rows_of_block.cuh"
#include "periphery/read_kernels.h"

namespace pulsora {
namespace {

/// The reads of an adapter's two arrays, beside the read of a large array.
struct ReadsBeside {
  InputStage large;
  PlainRead first;
  PlainRead second;
  unsigned readers;  // blocks that read the first array
};

/// Reads rows of the adapter's first array, and converts the results for the second.
template <class Rows>
__device__ void readFirst(const PlainRead &first, const InputStage &second, int64_t block) {
  Rows::read(first, block, [&](int64_t row, float, const float (&results)[kFewLines]) {
    convertShortRow(second, row, results);
  });
}

/// The blocks read the adapter's first array. Meanwhile the product of the large array may run: its
/// inputs were ready before this kernel.
template <class Rows, int kJobs>
__global__ void __launch_bounds__(Rows::kThreads, Rows::kBlocks)
    readBesideKernel(const __grid_constant__ Jobs<ReadsBeside, kJobs> jobs) {
  const auto &[large, first, second, readers] = jobs.ofBlock();
  awaitEarlier();
  letNextBegin();
  readFirst<Rows>(first, second.input, blockIdx.x);
}
template <class Rows>
constexpr JobKernel<ReadsBeside> kReadBesideKernel = {
    &readBesideKernel<Rows, 1>, &readBesideKernel<Rows, kMostJobs<ReadsBeside>>};

/// The first blocks read the adapter's first array; the others convert rows for the large array.
template <class Rows, int kJobs>
__global__ void __launch_bounds__(Rows::kThreads, Rows::kBlocks)
    convertBesideKernel(const __grid_constant__ Jobs<ReadsBeside, kJobs> jobs) {
  awaitEarlier();
  const auto &[large, first, second, readers] = jobs.ofBlock();
  if (blockIdx.x < readers) {
    readFirst<Rows>(first, second.input, blockIdx.x);
  } else {
    Rows::convert(large, blockIdx.x - readers, true);
  }
}
template <class Rows>
constexpr JobKernel<ReadsBeside> kConvertBesideKernel = {
    &convertBesideKernel<Rows, 1>, &convertBesideKernel<Rows, kMostJobs<ReadsBeside>>};

}  // namespace

void cudaReadBeside(const Context &context, const PlainRead &first, const PlainRead &second) {
  const CudaScope scope(context.device);
  withRowsOf(context, first.weights.cols, first.input.in.rows, [&](auto rows) {
    using Rows = decltype(rows);
    const unsigned readers = Rows::blocksFor(first.input.in.rows);
    launchJob(context.stream, kReadBesideKernel<Rows>, readers, Rows::kThreads, 0,
              ReadsBeside{{}, first, second, readers});
  });
}

void cudaConvertBeside(const Context &context, const InputStage &large, const PlainRead &first,
                       const PlainRead &second) {
  const CudaScope scope(context.device);
  withRowsOf(context, first.weights.cols, first.input.in.rows, [&](auto rows) {
    using Rows = decltype(rows);
    const unsigned readers = Rows::blocksFor(first.input.in.rows);
    launchJob(context.stream, kConvertBesideKernel<Rows>,
              readers + Rows::blocksFor(large.list.count), Rows::kThreads, 0,
              ReadsBeside{large, first, second, readers});
  });
}

}  // namespace pulsora
