#include "cuda/core/last_block.cuh"
#include "cuda/core/launch.cuh"
#include "cuda/pulses/pulse_train_scales.cuh"

// Maxima, scales and lengths of the pulse trains of a mini-batch, and the layout that the longest
// one needs, in one launch.

namespace pulsora {
namespace {

constexpr int kThreads = 256;

/// The results of a block for its sample.
struct Found {
  float x;
  float d;
  bool bad;

  __device__ void look(float &largest, float value) {
    largest = pulsora::max(largest, pulsora::abs(value));
    bad |= !isFinite(value);
  }
};
struct JoinFound {
  __device__ Found operator()(const Found &a, const Found &b) const {
    return {pulsora::max(a.x, b.x), pulsora::max(a.d, b.d), a.bad || b.bad};
  }
};
using FoundReduce = cub::BlockReduce<Found, kThreads>;

/// A mini-batch whose pulse trains are to be scaled.
struct Scaling {
  MatrixView<const float> x;
  MatrixView<const float> d;
  PulseTrainJob job;
};

/// A block per sample. The block that finishes last scales the pulse trains of all samples.
template <int kJobs>
__global__ void __launch_bounds__(kThreads)
    scaleTrainsKernel(const __grid_constant__ Jobs<Scaling, kJobs> jobs) {
  awaitEarlier();
  const auto &[x, d, job] = jobs.ofBlock();
  __shared__ typename FoundReduce::TempStorage storage;
  const PulseTrainMaxima &maxima = job.maxima;
  const int64_t s = blockIdx.x;
  const VectorView<const float> xRow = x.row(s);
  const VectorView<const float> dRow = d.row(s);
  Found found{0.0f, 0.0f, false};
  if (!maxima.present || s < *maxima.present) {
    for (int64_t j = threadIdx.x; j < xRow.size; j += kThreads) found.look(found.x, xRow[j]);
    for (int64_t j = threadIdx.x; j < dRow.size; j += kThreads) found.look(found.d, dRow[j]);
  }
  found = FoundReduce(storage).Reduce(found, JoinFound{});
  if (threadIdx.x == 0) {
    maxima.x[s] = found.x;
    maxima.d[s] = found.d;
    if (found.bad && maxima.nonfiniteFlag) *maxima.nonfiniteFlag = 1;
  }
  if (finishesLast(maxima.finished, gridDim.x)) scaleAll<kThreads>(x.rows, job);
}
constexpr JobKernel<Scaling> kScaleTrainsKernel = {&scaleTrainsKernel<1>,
                                                   &scaleTrainsKernel<kMostJobs<Scaling>>};

/// A thread per sample, for many samples of few lines.
template <int kJobs>
__global__ void __launch_bounds__(kThreads)
    scaleShortTrainsKernel(const __grid_constant__ Jobs<Scaling, kJobs> jobs) {
  awaitEarlier();
  const auto &[x, d, job] = jobs.ofBlock();
  const PulseTrainMaxima &maxima = job.maxima;
  const int64_t s = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (s < x.rows) {
    Found found{0.0f, 0.0f, false};
    if (!maxima.present || s < *maxima.present) {
      for (int64_t j = 0; j < x.cols; ++j) found.look(found.x, x(s, j));
      for (int64_t j = 0; j < d.cols; ++j) found.look(found.d, d(s, j));
    }
    maxima.x[s] = found.x;
    maxima.d[s] = found.d;
    if (found.bad && maxima.nonfiniteFlag) *maxima.nonfiniteFlag = 1;
    scaleSample(job, s, false);
  }
  if (finishesLast(maxima.finished, gridDim.x)) layOutScaled<kThreads>(x.rows, job);
}
constexpr JobKernel<Scaling> kScaleShortTrainsKernel = {
    &scaleShortTrainsKernel<1>, &scaleShortTrainsKernel<kMostJobs<Scaling>>};

}  // namespace

void cudaScalePulseTrains(const Context &context, MatrixView<const float> x,
                          MatrixView<const float> d, const PulseTrainJob &job) {
  constexpr int64_t kManySamples = 4096;
  constexpr int64_t kFewLines = 512;
  const CudaScope scope(context.device);
  const bool isShort = x.rows >= kManySamples && x.cols + d.cols <= kFewLines;
  const unsigned blocks = isShort ? gridFor(x.rows, kThreads) : static_cast<unsigned>(x.rows);
  launchJob(context.stream, isShort ? kScaleShortTrainsKernel : kScaleTrainsKernel, blocks,
            kThreads, 0, Scaling{x, d, job});
}

}  // namespace pulsora
