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

/// Carries out LinePulses for the elements [begin, end), and adds the number of pulses to `*sent`.
template <class Device>
__global__ void __launch_bounds__(kCellThreads)
    pulseLinesKernel(Array<Device> array, PulseLine<Device> work, uint64_t *sent, int64_t begin,
                     int64_t end) {
  awaitEarlier();
  __shared__ unsigned together;
  if (threadIdx.x == 0) together = 0;
  __syncthreads();
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kCellThreads;
  unsigned mine = 0;
  for (int64_t i = begin + static_cast<int64_t>(blockIdx.x) * kCellThreads + threadIdx.x; i < end;
       i += stride) {
    mine += work(array, i);
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
  } else if constexpr (kernel == ModelKernel::MergeFlat) {
    return &mergeFlatKernel<Device>;
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
