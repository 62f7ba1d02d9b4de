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
template <class Rows, class Product>
__device__ void readFirst(const PlainRead &first, const InputStage &second, int64_t block) {
  Rows::template read<Product>(first, block,
                               [&](int64_t row, float, const float (&results)[kFewLines]) {
                                 convertShortRow(second, row, results);
                               });
}

/// The blocks read the adapter's first array. Meanwhile the product of the large array may run: its
/// inputs were ready before this kernel.
template <class Rows, class Product, int kJobs>
__global__ void __launch_bounds__(Rows::kThreads, Rows::kBlocks)
    readBesideKernel(const __grid_constant__ Jobs<ReadsBeside, kJobs> jobs) {
  const auto &[large, first, second, readers] = jobs.ofBlock();
  awaitEarlier();
  letNextBegin();
  readFirst<Rows, Product>(first, second.input, blockIdx.x);
}
template <class Rows, class Product>
constexpr JobKernel<ReadsBeside> kReadBesideKernel = {
    &readBesideKernel<Rows, Product, 1>, &readBesideKernel<Rows, Product, kMostJobs<ReadsBeside>>};

/// The first blocks read the adapter's first array; the others convert rows for the large array.
template <class Rows, class Product, int kJobs>
__global__ void __launch_bounds__(Rows::kThreads, Rows::kBlocks)
    convertBesideKernel(const __grid_constant__ Jobs<ReadsBeside, kJobs> jobs) {
  awaitEarlier();
  const auto &[large, first, second, readers] = jobs.ofBlock();
  if (blockIdx.x < readers) {
    readFirst<Rows, Product>(first, second.input, blockIdx.x);
  } else {
    Rows::convert(large, blockIdx.x - readers, true);
  }
}
template <class Rows, class Product>
constexpr JobKernel<ReadsBeside> kConvertBesideKernel = {
    &convertBesideKernel<Rows, Product, 1>,
    &convertBesideKernel<Rows, Product, kMostJobs<ReadsBeside>>};

}  // namespace

void cudaReadBeside(const Context &context, const PlainRead &first, const PlainRead &second) {
  const CudaScope scope(context.device);
  const auto launch = [&](auto rows, auto product) {
    using Rows = decltype(rows);
    using Product = typename decltype(product)::Type;
    const unsigned readers = Rows::blocksFor(first.input.in.rows);
    launchJob(context.stream, kReadBesideKernel<Rows, Product>, readers, Rows::kThreads, 0,
              ReadsBeside{{}, first, second, readers});
  };
  withReadersOf(context, launch, first);
}

void cudaConvertBeside(const Context &context, const InputStage &large, const PlainRead &first,
                       const PlainRead &second) {
  const CudaScope scope(context.device);
  const auto launch = [&](auto rows, auto product) {
    using Rows = decltype(rows);
    using Product = typename decltype(product)::Type;
    const unsigned readers = Rows::blocksFor(first.input.in.rows);
    launchJob(context.stream, kConvertBesideKernel<Rows, Product>,
              readers + Rows::blocksToConvert(large.list.count), Rows::kThreads, 0,
              ReadsBeside{large, first, second, readers});
  };
  withReadersOf(context, launch, first);
}

}  // namespace pulsora
