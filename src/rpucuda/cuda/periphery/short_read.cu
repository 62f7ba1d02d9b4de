#include "cuda/core/grid.h"
#include "cuda/core/launch.cuh"
#include "cuda/periphery/row_per_thread.cuh"

namespace pulsora {
namespace {

constexpr int kShortReadBlocks = 8;  // on a processor at once; more registers gain less

/// Reads short rows, if the read isSimple().
template <class Product, int kLines, int kJobs>
__global__ void __launch_bounds__(kShortRowThreads, kLines > 8 ? 5 : 6)
    readSimpleRowsKernel(const __grid_constant__ Jobs<PlainRead, kJobs> jobs) {
  extern __shared__ __align__(16) unsigned char shared[];
  awaitEarlier();
  const PlainRead &r = jobs.ofBlock();
  const RowPerThread<Product, kLines> rows(r, shared);
  constexpr int kRows = RowPerThread<Product, kLines>::kRowsOfBlock;
#pragma unroll 1
  for (int64_t first = int64_t{blockIdx.x} * kRows; first < r.input.in.rows;
       first += int64_t{gridDim.x} * kRows)
    rows.read(first);
}
template <class Product, int kLines>
constexpr JobKernel<PlainRead> kReadSimpleRowsKernel = {
    &readSimpleRowsKernel<Product, kLines, 1>,
    &readSimpleRowsKernel<Product, kLines, kMostJobs<PlainRead>>};

/// Launches readSimpleRowsKernel, and returns whether its blocks have memory enough.
template <class Product, int kLines>
bool readSimpleRows(const Context &context, const PlainRead &read) {
  constexpr int64_t kBlocks = 1584;      // those at once on the largest cards, twice
  constexpr size_t kMostMemory = 49152;  // of a block
  using Rows = RowPerThread<Product, kLines>;
  const size_t memory = Rows::memoryOf(read.weights);
  if (memory > kMostMemory) return false;
  launchJob(context.stream, kReadSimpleRowsKernel<Product, kLines>,
            gridFor(read.input.in.rows, Rows::kRowsOfBlock, kBlocks), kShortRowThreads, memory,
            read);
  return true;
}

template <class Product>
bool readSimpleRows(const Context &context, const PlainRead &read) {
  const int64_t lines = read.weights.rows;
  if (lines <= 2) return readSimpleRows<Product, 2>(context, read);
  if (lines <= 4) return readSimpleRows<Product, 4>(context, read);
  if (lines <= 8) return readSimpleRows<Product, 8>(context, read);
  return readSimpleRows<Product, 16>(context, read);
}

// Any reads.

struct ShortRead {
  PlainRead read;
  PlainRead first;
  AddedRead added;
};

/// Reads short rows; with an adapter, reads its first array and then adds its second one.
template <class Product, int kJobs>
__global__ void __launch_bounds__(kShortRowThreads, kShortReadBlocks)
    readShortRowsKernel(const __grid_constant__ Jobs<ShortRead, kJobs> jobs) {
  awaitEarlier();
  const PlainRead &r = jobs.ofBlock().read;
  const PlainRead &first = jobs.ofBlock().first;
  const AddedRead &added = jobs.ofBlock().added;
  const Quad quad = Quad::ofThread(blockIdx.x);
  if (quad.row >= r.input.in.rows) return;
  readShortRow<Product>(r, quad);
  if (!added.isThere()) return;
  readShortRow<Product>(first, quad);
  const auto add = [&](int64_t line, float value) {
    float &out = r.output.out(quad.row, line);
    out = pulsora::fma(added.factor, value, out);
  };
  readShortRow<Product>(added.read, quad, add, [&] { readShortRow<Product>(r, quad); });
}
template <class Product>
constexpr JobKernel<ShortRead> kReadShortRowsKernel = {
    &readShortRowsKernel<Product, 1>, &readShortRowsKernel<Product, kMostJobs<ShortRead>>};

}  // namespace

void cudaReadShortRows(const Context &context, const PlainRead &read, const PlainRead &first,
                       const AddedRead &added) {
  const CudaScope scope(context.device);
  withProductOf(read, [&](auto product) {
    using Product = typename decltype(product)::Type;
    if (!added.isThere() && isSimple(read) && readSimpleRows<Product>(context, read)) return;
    launchJob(context.stream, kReadShortRowsKernel<Product>, gridForRows(read.input.in.rows),
              kShortRowThreads, 0, ShortRead{read, first, added});
  });
}

}  // namespace pulsora
