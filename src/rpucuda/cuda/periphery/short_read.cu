#include "cuda/core/launch.cuh"
#include "cuda/periphery/short_row.cuh"

namespace RPU {
namespace {

/// With an adapter, its first array is read, and then its second added.
__global__ void __launch_bounds__(kShortRowThreads)
    readShortRowsKernel(const __grid_constant__ PlainRead r,
                        const __grid_constant__ PlainRead first,
                        const __grid_constant__ AddedRead added) {
  awaitEarlier();
  const Quad quad = Quad::ofThread();
  if (quad.row >= r.input.in.rows) return;
  readShortRow(r, quad);
  if (!added.isThere()) return;
  readShortRow(first, quad);
  const auto add = [&](int64_t line, float value) {
    float &out = r.output.out(quad.row, line);
    out = RPU::fma(added.factor, value, out);
  };
  readShortRow(added.read, quad, add, [&] { readShortRow(r, quad); });
}

}  // namespace

void cudaReadShortRows(const Context &context, const PlainRead &read, const PlainRead &first,
                       const AddedRead &added) {
  const CudaScope scope(context.device);
  launch(context.stream, readShortRowsKernel, gridForRows(read.input.in.rows), kShortRowThreads, 0,
         read, first, added);
}

}  // namespace RPU
