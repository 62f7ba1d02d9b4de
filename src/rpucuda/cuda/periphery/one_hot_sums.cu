#include "periphery/one_hot_sums.h"

#include "core/backend.h"
#include "cuda/core/launch.cuh"

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

/// Adds a lane's part of the `count` inputs of a chunk to `part`.
__device__ double withChunk(double part, const OneHotRead &read, const LineSpread &spread,
                            int64_t line, int64_t begin, int count, const Driven &driven,
                            const float *weightNoise, const float *noise, int lane) {
  const int64_t first = begin + lane;
  const float *w = &read.weights(line, first);
  const float *variance = read.hasVariances() ? &read.variances(line, first) : nullptr;
  for (int i = lane; i < count; i += kSumLanes) {
    OutputDraws draws;
    if (read.drawsWeights()) draws.weight = weightNoise[i];
    if (read.output.noisy) draws.noise = noise[i];
    if (read.output.converter.adc.stochastic) draws.round = read.roundingOf(line, begin + i);
    const LineSums sums =
        read.sumsOf(*w, driven.input[i], driven.lateness[i], variance ? *variance : 0.0f);
    part += static_cast<double>(pulsora::abs(read.reading(sums, spread, draws)));
    w += kSumLanes * read.weights.colStride;
    if (variance) variance += kSumLanes * read.variances.colStride;
  }
  return part;
}

template <int kJobs>
__global__ void __launch_bounds__(kThreads)
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
      const int64_t left = inputs - begin;
      const int count = left < kInputs ? static_cast<int>(left) : kInputs;
      if (line < lines)
        part = withChunk(part, read, spread, line, begin, count, driven, weightNoise[warp],
                         noise[warp], lane);
    }
    for (int half = kSumLanes / 2; half > 0; half /= 2)
      part += __shfl_down_sync(0xffffffffU, part, half);
    if (lane == 0 && line < lines) out[line] = part;
  }
}

}  // namespace
}  // namespace gpu

void cudaSumOneHot(const Context &context, const OneHotRead &read, double *out) {
  if (read.weights.rows == 0) return;
  const CudaScope scope(context.device);
  launchJob(context.stream,
            JobKernel<gpu::OneHotSums>{&gpu::sumOneHotKernel<1>,
                                       &gpu::sumOneHotKernel<kMostJobs<gpu::OneHotSums>>},
            gridFor(read.weights.rows, gpu::kWarps), gpu::kThreads, 0,
            gpu::OneHotSums{read, out});
}

}  // namespace pulsora
