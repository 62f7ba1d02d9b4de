#include "cuda/core/last_block.cuh"
#include "cuda/core/launch.cuh"
#include "cuda/periphery/rows_of_block.cuh"
#include "cuda/periphery/short_row.cuh"
#include "cuda/pulses/pulse_train_scales.cuh"
#include "lrtt/projection.h"

namespace pulsora {
namespace {

constexpr int kCopiedPerThread = 8;

/// This block's piece of a copy.
__device__ void copyPiece(const MatrixCopy &copy) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < copy.size;
       i += stride)
    copy.to[i] = copy.from[i];
}

/// An AdapterProjection with its reads in an array, so that the same code reads g and e: choosing
/// kernel parameters by an index costs no registers, unlike an address.
struct Projecting {
  PlainRead reads[2];  // g and e
  PulseTrainJob a;
  PulseTrainJob b;
  MatrixCopy copies[2];
  unsigned blocks;  // for each of g and e
};

/// The first blocks read rows of g, and as many rows of e. The block that finishes last scales the
/// pulse trains.
template <class Rows, class Product>
__device__ void projectRows(const Projecting &p) {
  const unsigned which = blockIdx.x < p.blocks ? 0 : 1;
  const PlainRead &read = p.reads[which];
  Rows::template read<Product>(read, blockIdx.x - which * p.blocks,
                               [&](int64_t row, float in, const float (&results)[kFewLines]) {
                                 const float out = largestOf(results, read.weights.rows,
                                                             p.a.maxima.nonfiniteFlag);
                                 if (threadIdx.x % 32 != 0) return;
                                 (which == 0 ? p.b.maxima.x : p.a.maxima.d)[row] = in;
                                 (which == 0 ? p.a.maxima.x : p.b.maxima.d)[row] = out;
                               });
  if (finishesLast(p.a.maxima.finished, 2 * p.blocks))
    scaleBoth<Rows::kThreads>(p.reads[0].input.in.rows, p.a, p.b);
}

/// All blocks share the copies.
template <class Rows, class Product, int kJobs>
__global__ void __launch_bounds__(Rows::kThreads, Rows::kBlocks)
    projectKernel(const __grid_constant__ Jobs<Projecting, kJobs> jobs) {
  awaitEarlier();
  const Projecting &p = jobs.ofBlock();
  if (blockIdx.x < 2 * p.blocks) projectRows<Rows, Product>(p);
  for (const MatrixCopy &copy : p.copies) copyPiece(copy);
}
template <class Rows, class Product>
constexpr JobKernel<Projecting> kProjectKernel = {
    &projectKernel<Rows, Product, 1>, &projectKernel<Rows, Product, kMostJobs<Projecting>>};

/// The largest |result| of a row; a non-finite result sets the flag.
__device__ float largestResult(const PlainRead &r, const Quad &quad, uint32_t *nonfiniteFlag) {
  float largest = 0.0f;
  bool bad = false;
  for (int64_t k = quad.place; k < r.weights.rows; k += kQuad) {
    const float value = r.output.out(quad.row, k);
    largest = pulsora::max(largest, pulsora::abs(value));
    bad |= !isFinite(value);
  }
  if (bad && nonfiniteFlag) *nonfiniteFlag = 1;
  return quad.largest(largest);
}

/// Reads a row of g and of e, and scales its pulse trains.
template <class Product>
__device__ void projectShortRow(const AdapterProjection &p, const Quad &quad) {
  const float in = readShortRow<Product>(p.g, quad);
  const float out = readShortRow<Product>(p.e, quad);
  const float g = largestResult(p.g, quad, p.a.maxima.nonfiniteFlag);
  const float e = largestResult(p.e, quad, p.a.maxima.nonfiniteFlag);
  if (quad.place == 0) {
    p.a.maxima.x[quad.row] = g;
    p.a.maxima.d[quad.row] = out;
    scaleSample(p.a, quad.row, false);
  } else if (quad.place == 1) {
    p.b.maxima.x[quad.row] = in;
    p.b.maxima.d[quad.row] = e;
    scaleSample(p.b, quad.row, false);
  }
}

/// A quad of threads per row; all share the copies.
template <class Product, int kJobs>
__global__ void __launch_bounds__(kShortRowThreads, kShortRowBlocks)
    projectShortRowsKernel(const __grid_constant__ Jobs<AdapterProjection, kJobs> jobs) {
  awaitEarlier();
  const AdapterProjection &p = jobs.ofBlock();
  const int64_t rows = p.g.input.in.rows;
  const Quad quad = Quad::ofThread(blockIdx.x);
  if (quad.row < rows) projectShortRow<Product>(p, quad);
  for (const MatrixCopy &copy : p.copies) copyPiece(copy);
  if (!finishesLast(p.a.maxima.finished, gridDim.x)) return;
  layOutScaled<kShortRowThreads>(rows, p.a);
  layOutScaled<kShortRowThreads>(rows, p.b);
}
template <class Product>
constexpr JobKernel<AdapterProjection> kProjectShortRowsKernel = {
    &projectShortRowsKernel<Product, 1>,
    &projectShortRowsKernel<Product, kMostJobs<AdapterProjection>>};

}  // namespace

void cudaProject(const Context &context, const AdapterProjection &p) {
  const CudaScope scope(context.device);
  const int64_t count = p.g.input.in.rows;
  if (areShortRows(context, p.g.weights, count) && areShortRows(context, p.e.weights, count)) {
    withProductOf(p.g, [&](auto product) {
      launchJob(context.stream, kProjectShortRowsKernel<typename decltype(product)::Type>,
                gridForRows(count), kShortRowThreads, 0, p);
    });
    return;
  }
  const auto launch = [&](auto rows, auto product) {
    using Rows = decltype(rows);
    const unsigned readers = Rows::blocksFor(count);
    const unsigned copiers =
        gridFor(p.copies[0].size + p.copies[1].size, kCopiedPerThread * Rows::kThreads, 64);
    const unsigned blocks =
        pulsora::max(2 * readers, copiers);  // a sum needs a second wave of blocks
    launchJob(context.stream, kProjectKernel<Rows, typename decltype(product)::Type>, blocks,
              Rows::kThreads, 0,
              Projecting{{p.g, p.e}, p.a, p.b, {p.copies[0], p.copies[1]}, readers});
  };
  withReadersOf(context, launch, p.g, p.e);
}

}  // namespace pulsora
