#include "cuda/core/last_block.cuh"
#include "cuda/core/launch.cuh"
#include "cuda/pulses/pulse_train_scales.cuh"

// Maxima, scales and lengths of the pulse trains of a mini-batch, and the layout that the longest
// one needs, in one launch.

namespace pulsora {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;

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

/// A warp per sample, for many samples.
template <int kJobs>
__global__ void __launch_bounds__(kThreads)
    scaleManyTrainsKernel(const __grid_constant__ Jobs<Scaling, kJobs> jobs) {
  awaitEarlier();
  const auto &[x, d, job] = jobs.ofBlock();
  const PulseTrainMaxima &maxima = job.maxima;
  const int64_t s = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (s < x.rows) {
    Found found{0.0f, 0.0f, false};
    if (!maxima.present || s < *maxima.present) {
      const VectorView<const float> xRow = x.row(s);
      const VectorView<const float> dRow = d.row(s);
#pragma unroll 4
      for (int64_t j = lane; j < xRow.size; j += kWarp) found.look(found.x, xRow[j]);
#pragma unroll 4
      for (int64_t j = lane; j < dRow.size; j += kWarp) found.look(found.d, dRow[j]);
    }
#pragma unroll
    for (int half = kWarp / 2; half > 0; half /= 2) {
      const Found other{__shfl_xor_sync(0xFFFFFFFFU, found.x, half),
                        __shfl_xor_sync(0xFFFFFFFFU, found.d, half),
                        __shfl_xor_sync(0xFFFFFFFFU, int{found.bad}, half) != 0};
      found = JoinFound{}(found, other);
    }
    if (lane == 0) {
      maxima.x[s] = found.x;
      maxima.d[s] = found.d;
      if (found.bad && maxima.nonfiniteFlag) *maxima.nonfiniteFlag = 1;
      scaleSample(job, s, false);
    }
  }
  if (finishesLast(maxima.finished, gridDim.x)) layOutScaled<kThreads>(x.rows, job);
}
constexpr JobKernel<Scaling> kScaleManyTrainsKernel = {&scaleManyTrainsKernel<1>,
                                                       &scaleManyTrainsKernel<kMostJobs<Scaling>>};

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
  struct Way {
    const JobKernel<Scaling> &kernel;
    int samplesOfBlock;
  };
  const CudaScope scope(context.device);
  const int64_t lines = x.cols + d.cols;
  const Way way = x.rows >= 4096 && lines <= 512    ? Way{kScaleShortTrainsKernel, kThreads}
                  : x.rows >= 1024 && lines <= 4096 ? Way{kScaleManyTrainsKernel, kThreads / kWarp}
                                                    : Way{kScaleTrainsKernel, 1};
  launchJob(context.stream, way.kernel, gridFor(x.rows, way.samplesOfBlock, x.rows), kThreads, 0,
            Scaling{x, d, job});
}

}  // namespace pulsora
