#include "cuda/core/launch.cuh"
#include "cuda/periphery/short_row.cuh"

namespace pulsora {
namespace {

constexpr int kShortReadBlocks = 8;  // on a processor at once; more registers gain less

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
  const Quad quad = Quad::ofThread();
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
    launchJob(context.stream, kReadShortRowsKernel<Product>, gridForRows(read.input.in.rows),
              kShortRowThreads, 0, ShortRead{read, first, added});
  });
}

}  // namespace pulsora
