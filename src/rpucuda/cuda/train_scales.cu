#include <cub/cub.cuh>

#include "core/math.h"
#include "cuda/check.cuh"
#include "pulse_words_kernel.h"

// Maxima, scales and lengths of the trains of a mini-batch, and the layout that the longest needs, in one launch.

namespace RPU {
namespace {

constexpr int kThreads = 256;
using FloatReduce = cub::BlockReduce<float, kThreads>;
using IntReduce = cub::BlockReduce<int, kThreads>;

struct Larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return RPU::max(a, b);
  }
};

__device__ float largestOf(VectorView<const float> row) {
  float largest = 0.0f;
  for (int64_t j = threadIdx.x; j < row.size; j += kThreads) largest = RPU::max(largest, RPU::abs(row[j]));
  return largest;
}

/// A block per sample. The block that finishes last sees all lengths and chooses the layout.
__global__ void __launch_bounds__(kThreads) scaleTrainsKernel(MatrixView<const float> x, MatrixView<const float> d,
                                                              TrainMaxima maxima, TrainScaler scaler,
                                                              PulseLayout *layout) {
  __shared__ typename FloatReduce::TempStorage xStorage, dStorage;
  __shared__ typename IntReduce::TempStorage lengthStorage;
  __shared__ bool isLast;
  const int64_t s = blockIdx.x;
  const float xMax = FloatReduce(xStorage).Reduce(largestOf(x.row(s)), Larger{});
  const float dMax = FloatReduce(dStorage).Reduce(largestOf(d.row(s)), Larger{});
  if (threadIdx.x == 0) {
    maxima.x[s] = xMax;
    maxima.d[s] = dMax;
    scaler(s);
    __threadfence();
    isLast = atomicAdd(maxima.finished, 1u) + 1 == gridDim.x;
  }
  __syncthreads();
  if (!isLast) return;
  __threadfence();
  int longest = 0;
  for (int64_t i = threadIdx.x; i < x.rows; i += kThreads) longest = RPU::max(longest, __ldcg(scaler.lengths + i));
  longest = IntReduce(lengthStorage).Reduce(longest, Larger{});
  if (threadIdx.x == 0) {
    *layout = PulseLayout::of(longest);
    *maxima.finished = 0;
  }
}

}  // namespace

void cudaScaleTrains(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                     const TrainMaxima &maxima, const TrainScaler &scaler, PulseLayout *layout) {
  const CudaScope scope(context.device);
  scaleTrainsKernel<<<static_cast<unsigned>(x.rows), kThreads, 0, streamOf(context)>>>(x, d, maxima, scaler, layout);
  RPU_CUDA(cudaGetLastError());
}

}  // namespace RPU
