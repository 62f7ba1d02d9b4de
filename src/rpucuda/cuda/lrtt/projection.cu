#include "cuda/core/last_block.cuh"
#include "cuda/core/launch.cuh"
#include "cuda/periphery/short_row.cuh"
#include "cuda/pulses/train_scales.cuh"
#include "lrtt/projection.h"

namespace RPU {
namespace {

constexpr int kThreads = 512;
constexpr int kCopiedPerBlock = 8 * kThreads;

/// This block's piece of a copy.
__device__ void copyPiece(const MatrixCopy &copy) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < copy.size;
       i += stride)
    copy.to[i] = copy.from[i];
}

/// A block reads row `row` of g, or else of e. The block that finishes last scales the trains.
__device__ void projectRow(const AdapterProjection &p, bool isG, int64_t row) {
  __shared__ float results[kFewLines];
  const int64_t rows = p.g.input.in.rows;
  const PlainRead &read = isG ? p.g : p.e;
  const float in = readRow<kThreads>(read, row, results);
  const float out = largestOf(results, read.weights.rows, p.a.maxima.fault);
  if (threadIdx.x == 0) {
    (isG ? p.b.maxima.x : p.a.maxima.d)[row] = in;
    (isG ? p.a.maxima.x : p.b.maxima.d)[row] = out;
  }
  if (finishesLast(p.a.maxima.finished, static_cast<unsigned>(2 * rows)))
    scaleBoth<kThreads>(rows, p.a, p.b);
}

/// A row of g per block, then a row of e per block; all share the copies.
template <int kJobs>
__global__ void __launch_bounds__(kThreads, 1)
    projectKernel(const __grid_constant__ Jobs<AdapterProjection, kJobs> jobs) {
  awaitEarlier();
  const AdapterProjection &p = jobs.ofBlock();
  const int64_t rows = p.g.input.in.rows;
  const bool isG = blockIdx.x < rows;
  if (blockIdx.x < 2 * rows) projectRow(p, isG, isG ? blockIdx.x : blockIdx.x - rows);
  for (const MatrixCopy &copy : p.copies) copyPiece(copy);
}
constexpr JobKernel<AdapterProjection> kProjectKernel = {
    &projectKernel<1>, &projectKernel<kMostJobs<AdapterProjection>>};

/// The largest |result| of a row; one that is not finite sets the fault word.
__device__ float largestResult(const PlainRead &r, const Quad &quad, uint32_t *fault) {
  float largest = 0.0f;
  bool bad = false;
  for (int64_t k = quad.place; k < r.weights.rows; k += kQuad) {
    const float value = r.output.out(quad.row, k);
    largest = RPU::max(largest, RPU::abs(value));
    bad |= !isFinite(value);
  }
  if (bad && fault) *fault = 1;
  return quad.largest(largest);
}

/// Reads a row of g and of e, and scales its trains.
__device__ void projectShortRow(const AdapterProjection &p, const Quad &quad) {
  const float in = readShortRow(p.g, quad);
  const float out = readShortRow(p.e, quad);
  const float g = largestResult(p.g, quad, p.a.maxima.fault);
  const float e = largestResult(p.e, quad, p.a.maxima.fault);
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
template <int kJobs>
__global__ void __launch_bounds__(kShortRowThreads)
    projectShortRowsKernel(const __grid_constant__ Jobs<AdapterProjection, kJobs> jobs) {
  awaitEarlier();
  const AdapterProjection &p = jobs.ofBlock();
  const int64_t rows = p.g.input.in.rows;
  const Quad quad = Quad::ofThread();
  if (quad.row < rows) projectShortRow(p, quad);
  for (const MatrixCopy &copy : p.copies) copyPiece(copy);
  if (!finishesLast(p.a.maxima.finished, gridDim.x)) return;
  layOutScaled<kShortRowThreads>(rows, p.a);
  layOutScaled<kShortRowThreads>(rows, p.b);
}
constexpr JobKernel<AdapterProjection> kProjectShortRowsKernel = {
    &projectShortRowsKernel<1>, &projectShortRowsKernel<kMostJobs<AdapterProjection>>};

}  // namespace

void cudaProject(const Context &context, const AdapterProjection &p) {
  const CudaScope scope(context.device);
  const int64_t count = p.g.input.in.rows;
  if (areShortRows(context, p.g.weights, count) && areShortRows(context, p.e.weights, count)) {
    launchJob(context.stream, kProjectShortRowsKernel, gridForRows(count), kShortRowThreads, 0, p);
    return;
  }
  const auto rows = static_cast<unsigned>(count);
  const unsigned copiers = gridFor(p.copies[0].size + p.copies[1].size, kCopiedPerBlock, 64);
  const unsigned blocks = RPU::max(2 * rows, copiers);  // not their sum: that is a second wave
  launchJob(context.stream, kProjectKernel, blocks, kThreads, 0, p);
}

}  // namespace RPU
