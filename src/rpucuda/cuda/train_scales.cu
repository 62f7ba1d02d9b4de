#include <cub/cub.cuh>

#include "core/math.h"
#include "cuda/check.cuh"
#include "pulse_words_kernel.h"

// Maxima, scales and lengths of the trains of a mini-batch, and the layout that the longest needs,
// in one launch.

namespace RPU {
namespace {

constexpr int kThreads = 256;

/// What a block finds out about a sample.
struct Found {
  float x;
  float d;
  bool bad;

  __device__ void look(float &largest, float value) {
    largest = RPU::max(largest, RPU::abs(value));
    bad |= !isFinite(value);
  }
};
struct JoinFound {
  __device__ Found operator()(const Found &a, const Found &b) const {
    return {RPU::max(a.x, b.x), RPU::max(a.d, b.d), a.bad || b.bad};
  }
};
using FoundReduce = cub::BlockReduce<Found, kThreads>;
using IntReduce = cub::BlockReduce<int, kThreads>;

struct Larger {
  __device__ int operator()(int a, int b) const { return RPU::max(a, b); }
};

/// The layout for the lengths of all samples; with the fault word set, all lengths become 0. For
/// one block.
__device__ void chooseLayout(int64_t samples, const TrainMaxima &maxima, const TrainScaler &scaler,
                             PulseLayout *layout) {
  __shared__ typename IntReduce::TempStorage storage;
  const bool isFaulty = maxima.fault && __ldcg(maxima.fault) != 0;
  int longest = 0;
  for (int64_t i = threadIdx.x; i < samples; i += kThreads) {
    if (isFaulty) {
      scaler.scales[i] = {0, 0.0f, 0.0f, 0.0f};
      scaler.lengths[i] = 0;
    } else {
      longest = RPU::max(longest, __ldcg(scaler.lengths + i));
    }
  }
  longest = IntReduce(storage).Reduce(longest, Larger{});
  if (threadIdx.x == 0) {
    *layout = PulseLayout::of(longest);
    *maxima.finished = 0;
  }
}

/// A block per sample. The block that finishes last sees all lengths and chooses the layout.
__global__ void __launch_bounds__(kThreads)
    scaleTrainsKernel(MatrixView<const float> x, MatrixView<const float> d, TrainMaxima maxima,
                      TrainScaler scaler, PulseLayout *layout) {
  __shared__ typename FoundReduce::TempStorage storage;
  __shared__ bool isLast;
  const int64_t s = blockIdx.x;
  const VectorView<const float> xRow = x.row(s);
  const VectorView<const float> dRow = d.row(s);
  Found found{0.0f, 0.0f, false};
  for (int64_t j = threadIdx.x; j < xRow.size; j += kThreads) found.look(found.x, xRow[j]);
  for (int64_t j = threadIdx.x; j < dRow.size; j += kThreads) found.look(found.d, dRow[j]);
  found = FoundReduce(storage).Reduce(found, JoinFound{});
  if (threadIdx.x == 0) {
    maxima.x[s] = found.x;
    maxima.d[s] = found.d;
    if (found.bad && maxima.fault) *maxima.fault = 1;
    scaler(s);
    __threadfence();
    isLast = atomicAdd(maxima.finished, 1u) + 1 == gridDim.x;
  }
  __syncthreads();
  if (!isLast) return;
  __threadfence();
  chooseLayout(x.rows, maxima, scaler, layout);
}

}  // namespace

void cudaScaleTrains(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                     const TrainMaxima &maxima, const TrainScaler &scaler, PulseLayout *layout) {
  const CudaScope scope(context.device);
  scaleTrainsKernel<<<static_cast<unsigned>(x.rows), kThreads, 0, streamOf(context)>>>(
      x, d, maxima, scaler, layout);
  RPU_CUDA(cudaGetLastError());
}

}  // namespace RPU
