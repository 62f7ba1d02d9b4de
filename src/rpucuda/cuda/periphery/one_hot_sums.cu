#include "core/backend.h"
#include "cuda/core/launch.cuh"
#include "periphery/one_hot_sums.h"

// Sums of one-hot readings on a GPU. A warp takes an output, a lane each 32nd input, as in
// sumRows(); a block of random numbers serves the eight readings whose normals it holds.

namespace pulsora {
namespace gpu {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kSumLanes;
constexpr int kInputs = 8 * kSumLanes;  // of a chunk: a block of random numbers for each lane
static_assert(kInputs == kThreads, "a thread converts one input of a chunk");

struct OneHotSums {
  OneHotRead read;
  double *out;
};

/// The normals of the readings of a chunk by an output: each lane makes eight of them.
__device__ void fillNormals(float *z, const StageDraws &d, Purpose purpose, int64_t line,
                            int64_t begin, int lane) {
  const uint64_t block = (d.firstSample + static_cast<uint64_t>(begin)) / 8 + lane;
  const Normal8 own =
      normal8(draw(d.key, purpose, static_cast<uint64_t>(line), block, drawIndex(0, 0)));
  auto *to = reinterpret_cast<float4 *>(z + 8 * lane);
  to[0] = make_float4(own.z[0], own.z[1], own.z[2], own.z[3]);
  to[1] = make_float4(own.z[4], own.z[5], own.z[6], own.z[7]);
}

/// Converted inputs of 1 of a chunk, and their weights in the IR drop.
struct Driven {
  float input[kInputs];
  float lateness[kInputs];
};

constexpr int kOfLane = kInputs / kSumLanes;

/// A lane's cells of a chunk, which are asked for before there is work on them.
struct CellsOfLane {
  float weight[kOfLane];
  float variance[kOfLane] = {};

  __device__ CellsOfLane(const OneHotRead &read, int64_t line, int64_t begin, int lane) {
    load(read.weights, line, begin + lane, weight);
    if (read.hasVariances()) load(read.variances, line, begin + lane, variance);
  }

 private:
  static __device__ void load(MatrixView<const float> from, int64_t line, int64_t first,
                              float *to) {
    const float *at = from.data + line * from.rowStride + first * from.colStride;
    const int64_t left = from.cols - first;
    if (from.colStride == 1 && left > (kOfLane - 1) * kSumLanes) {
      for (int k = 0; k < kOfLane; ++k) to[k] = at[k * kSumLanes];
      return;
    }
    const int64_t step = kSumLanes * from.colStride;
    for (int k = 0; k < kOfLane; ++k) to[k] = k * kSumLanes < left ? at[k * step] : 0.0f;
  }
};

/// Adds the magnitudes of a lane's readings of a chunk to `part`; of simple reads.
__device__ double withSimpleChunk(double part, const OneHotRead &read, const LineSpread &spread,
                                  int left, const CellsOfLane &cells, float input,
                                  const float *noise, int lane) {
  float seen[kOfLane];
  for (int k = 0; k < kOfLane; ++k) {
    OutputDraws draws;
    draws.noise = read.output.noisy ? noise[lane + k * kSumLanes] : 0.0f;
    const LineSums sums = read.sumsOf(cells.weight[k], input, 0.0f, 0.0f);
    seen[k] = pulsora::abs(read.reading<false>(sums, spread, draws));
  }
  for (int k = 0; k < kOfLane; ++k) {
    if (lane + k * kSumLanes < left) part += static_cast<double>(seen[k]);
  }
  return part;
}

/// The sum of a lane's parts, of all lanes, for an output.
__device__ void storeSum(double part, int lane, double *out) {
  for (int half = kSumLanes / 2; half > 0; half /= 2)
    part += __shfl_down_sync(0xffffffffU, part, half);
  if (lane == 0) *out = part;
}

/// Sums of simple reads, whose lines are all driven alike: those of hasOutputNoiseAlone().
/// Warps do not wait for one another.
template <int kJobs>
__global__ void __launch_bounds__(kThreads, 4)
    sumSimpleOneHotKernel(const __grid_constant__ Jobs<OneHotSums, kJobs> jobs) {
  awaitEarlier();
  __shared__ alignas(16) float noise[kWarps][kInputs];
  const auto &[read, out] = jobs.ofBlock();
  const OutputStage &s = read.output;
  const int64_t inputs = read.weights.cols;
  const int warp = static_cast<int>(threadIdx.x) / kSumLanes;
  const int lane = static_cast<int>(threadIdx.x) % kSumLanes;
  const float input = read.driven(0);
  for (int64_t line = static_cast<int64_t>(blockIdx.x) * kWarps + warp; line < read.weights.rows;
       line += static_cast<int64_t>(gridDim.x) * kWarps) {
    const LineSpread spread = spreadOf(s, line);
    double part = 0.0;
    for (int64_t begin = 0; begin < inputs; begin += kInputs) {
      const CellsOfLane cells(read, line, begin, lane);
      if (s.noisy) fillNormals(noise[warp], s.draws, s.draws.noise, line, begin, lane);
      __syncwarp();
      const auto left = static_cast<int>(pulsora::min(inputs - begin, int64_t{kInputs}));
      part = withSimpleChunk(part, read, spread, left, cells, input, noise[warp], lane);
      __syncwarp();
    }
    storeSum(part, lane, out + line);
  }
}

/// Adds the magnitudes of a lane's readings of a chunk to `part`.
template <bool kEffects>
__device__ double withChunk(double part, const OneHotRead &read, const LineSpread &spread,
                            int64_t line, int64_t begin, const CellsOfLane &cells,
                            const Driven &driven, const float *weightNoise, const float *noise,
                            int lane) {
  float rounds[kOfLane] = {};
  if (read.output.converter.adc.stochastic) {
    for (int k = 0; k < kOfLane; ++k)
      rounds[k] = read.roundingOf(line, begin + lane + k * kSumLanes);
  }
  float seen[kOfLane];
  for (int k = 0; k < kOfLane; ++k) {
    const int i = lane + k * kSumLanes;
    OutputDraws draws;
    if (kEffects && read.drawsWeights()) draws.weight = weightNoise[i];
    if (read.output.noisy) draws.noise = noise[i];
    draws.round = rounds[k];
    const LineSums sums =
        read.sumsOf(cells.weight[k], driven.input[i], driven.lateness[i], cells.variance[k]);
    seen[k] = pulsora::abs(read.reading<kEffects>(sums, spread, draws));
  }
  const int64_t left = read.weights.cols - begin;
  for (int k = 0; k < kOfLane; ++k) {
    if (lane + k * kSumLanes < left) part += static_cast<double>(seen[k]);
  }
  return part;
}

template <int kJobs>
__global__ void __launch_bounds__(kThreads, 3)
    sumOneHotKernel(const __grid_constant__ Jobs<OneHotSums, kJobs> jobs) {
  awaitEarlier();
  __shared__ Driven driven;
  __shared__ alignas(16) float weightNoise[kWarps][kInputs];
  __shared__ alignas(16) float noise[kWarps][kInputs];
  const auto &[read, out] = jobs.ofBlock();
  const OutputStage &s = read.output;
  const int64_t lines = read.weights.rows;
  const int64_t inputs = read.weights.cols;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kSumLanes;
  const int lane = thread % kSumLanes;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kWarps; first < lines;
       first += static_cast<int64_t>(gridDim.x) * kWarps) {
    const int64_t line = first + warp;
    const LineSpread spread = spreadOf(s, line < lines ? line : first);
    double part = 0.0;
    for (int64_t begin = 0; begin < inputs; begin += kInputs) {
      const CellsOfLane cells(read, line < lines ? line : first, begin, lane);
      __syncthreads();
      if (begin + thread < inputs) {
        driven.input[thread] = read.driven(begin + thread);
        driven.lateness[thread] = lateness(begin + thread, inputs);
      }
      if (line < lines) {
        if (read.drawsWeights())
          fillNormals(weightNoise[warp], s.draws, s.draws.weight, line, begin, lane);
        if (s.noisy) fillNormals(noise[warp], s.draws, s.draws.noise, line, begin, lane);
      }
      __syncthreads();
      if (line >= lines) continue;
      part = s.hasEffects ? withChunk<true>(part, read, spread, line, begin, cells, driven,
                                            weightNoise[warp], noise[warp], lane)
                          : withChunk<false>(part, read, spread, line, begin, cells, driven,
                                             weightNoise[warp], noise[warp], lane);
    }
    if (line < lines) storeSum(part, lane, out + line);
  }
}

}  // namespace
}  // namespace gpu

void cudaSumOneHot(const Context &context, const OneHotRead &read, double *out) {
  if (read.weights.rows == 0) return;
  const CudaScope scope(context.device);
  using Kernel = JobKernel<gpu::OneHotSums>;
  constexpr int kMost = kMostJobs<gpu::OneHotSums>;
  const Kernel any{&gpu::sumOneHotKernel<1>, &gpu::sumOneHotKernel<kMost>};
  const Kernel simple{&gpu::sumSimpleOneHotKernel<1>, &gpu::sumSimpleOneHotKernel<kMost>};
  launchJob(context.stream, hasOutputNoiseAlone(read.input, read.output) ? simple : any,
            gridFor(read.weights.rows, gpu::kWarps), gpu::kThreads, 0, gpu::OneHotSums{read, out});
}

}  // namespace pulsora
