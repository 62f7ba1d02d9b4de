#pragma once

#include "array/cell_events.h"
#include "array/line_events.h"
#include "cuda/array/batch_update.cuh"
#include "cuda/array/model_launches.h"
#include "cuda/array/program_kernel.cuh"
#include "cuda/array/pulsed_update.cuh"
#include "cuda/core/warp_sum.cuh"

// The device half of a device model's kernels: all of its code for a GPU. nvcc reads it for
// built-in models; NVRTC, which has neither CUDA's headers nor a host, reads it for models that are
// compiled at run time.

namespace pulsora {
namespace gpu {

/// Calls work(array, i) for the cells [begin, end). A thread treats one cell.
template <class Device, class Work>
__global__ void __launch_bounds__(kCellThreads)
    cellsKernel(Array<Device> array, Work work, int64_t begin, int64_t end) {
  awaitEarlier();
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kCellThreads;
  for (int64_t i = begin + static_cast<int64_t>(blockIdx.x) * kCellThreads + threadIdx.x; i < end;
       i += stride) {
    work(array, i);
  }
}

/// Lists the elements that change their cells, of `each` times kCellThreads from `first` on, and
/// returns their number. For all threads of the block.
template <class Device>
__device__ __forceinline__ unsigned listChanges(const Array<Device> &array,
                                                const PulseLine<Device> &work, int64_t first,
                                                int64_t end, int each,
                                                uint16_t (&listed)[kLinesEach * kCellThreads],
                                                unsigned &count) {
  __syncthreads();
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  const unsigned lane = threadIdx.x & 31u;
  unsigned masks[kLinesEach] = {};
  unsigned ofWarp = 0;
#pragma unroll
  for (int e = 0; e < kLinesEach; ++e) {
    if (e >= each) break;
    const int64_t i = first + e * kCellThreads + threadIdx.x;
    masks[e] = __ballot_sync(0xffffffffu, i < end && work.changes(array, i));
    ofWarp += static_cast<unsigned>(__popc(masks[e]));
  }
  unsigned at = 0;
  if (lane == 0 && ofWarp) at = atomicAdd(&count, ofWarp);
  at = __shfl_sync(0xffffffffu, at, 0);
#pragma unroll
  for (int e = 0; e < kLinesEach; ++e) {
    const unsigned before = static_cast<unsigned>(__popc(masks[e] & ((1u << lane) - 1u)));
    if (masks[e] >> lane & 1u)
      listed[at + before] = static_cast<uint16_t>(e * kCellThreads + threadIdx.x);
    at += static_cast<unsigned>(__popc(masks[e]));
  }
  __syncthreads();
  return count;
}

/// Carries out LinePulses for the elements [begin, end), and adds the number of pulses to `*sent`.
/// Few cells may have pulses: a block lists those of `each` elements a thread, and shares them out.
template <class Device>
__global__ void __launch_bounds__(kCellThreads)
    pulseLinesKernel(const __grid_constant__ Array<Device> array,
                     const __grid_constant__ PulseLine<Device> work, uint64_t *sent, int64_t begin,
                     int64_t end, int each) {
  awaitEarlier();
  __shared__ uint16_t listed[kLinesEach * kCellThreads];
  __shared__ unsigned count;
  __shared__ unsigned together;
  if (threadIdx.x == 0) together = 0;
  const int64_t elements = int64_t{each} * kCellThreads;
  unsigned mine = 0;
  for (int64_t first = begin + static_cast<int64_t>(blockIdx.x) * elements; first < end;
       first += static_cast<int64_t>(gridDim.x) * elements) {
    const unsigned changes = listChanges(array, work, first, end, each, listed, count);
#pragma unroll 1
    for (unsigned k = threadIdx.x; k < changes; k += kCellThreads)
      mine += work(array, first + listed[k]);
  }
  const unsigned ofWarp = warpSum(mine);
  if ((threadIdx.x & 31) == 0 && ofWarp) atomicAdd(&together, ofWarp);
  __syncthreads();
  if (threadIdx.x == 0 && together) {
    atomicAdd(reinterpret_cast<unsigned long long *>(sent),
              static_cast<unsigned long long>(together));
  }
}

/// Stands for a kernel that a model does not have.
template <class Device>
__global__ void noKernel() {
  awaitEarlier();
}

/// The device function of a ModelKernel.
template <class Device, ModelKernel kernel>
constexpr auto codeOf() {
  if constexpr (kernel == ModelKernel::Construct) {
    return &cellsKernel<Device, ConstructCell<Device>>;
  } else if constexpr (kernel == ModelKernel::Describe) {
    return &cellsKernel<Device, DescribeCell<Device>>;
  } else if constexpr (kernel == ModelKernel::Balance) {
    return &cellsKernel<Device, BalanceCell<Device>>;
  } else if constexpr (kernel == ModelKernel::Relax) {
    return &cellsKernel<Device, RelaxCell>;
  } else if constexpr (kernel == ModelKernel::Reset) {
    return &cellsKernel<Device, ResetCell>;
  } else if constexpr (kernel == ModelKernel::Write) {
    return &cellsKernel<Device, WriteCell>;
  } else if constexpr (kernel == ModelKernel::PulseLines) {
    return &pulseLinesKernel<Device>;
  } else if constexpr (kernel == ModelKernel::TapLines) {
    return &cellsKernel<Device, TapLine<Device>>;
  } else if constexpr (kernel == ModelKernel::Program) {
    return &programKernel<Device>;
  } else if constexpr (kernel == ModelKernel::UpdateOne) {
    return &updateKernel<Device, 1>;
  } else if constexpr (kernel == ModelKernel::UpdateTwo) {
    return &updateKernel<Device, 2>;
  } else if constexpr (kernel == ModelKernel::UpdateMost) {
    return &updateKernel<Device, kMostTogether>;
  } else if constexpr (!kMergesNoise<Device>) {
    return &noKernel<Device>;
  } else if constexpr (kernel == ModelKernel::MergeRows) {
    return &mergeRowsKernel<Device>;
  } else if constexpr (kernel == ModelKernel::MergeTiles) {
    if constexpr (kMergesInOrder<Device>) {
      return &noKernel<Device>;
    } else {
      return &mergeTilesKernel<Device>;
    }
  } else {
    return &deferredCellsKernel<Device>;
  }
}

}  // namespace gpu
}  // namespace pulsora
