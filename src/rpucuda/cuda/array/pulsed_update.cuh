#pragma once

#include "cuda/array/update_dense.cuh"
#include "cuda/array/update_plain.cuh"
#include "cuda/array/update_sparse.cuh"
#include "cuda/core/warp_sum.cuh"

// The pulsed update on the GPU. A thread holds one cell in registers and walks through the
// mini-batch; the steps come from devices/pulse_rule.h. The pulses, which the kernel learns on
// the device, decide which of three paths is taken.

namespace pulsora {
namespace gpu {

static_assert(kRowsPerWarp * kWarps == kStagedRows, "see Blocks::of()");

// The compiler keeps to 64 registers for this many blocks.
constexpr int kBlocksPerProcessor = 8;

/// Shared memory of a block.
struct UpdateMemory {
  union {
    Stage stage;
    WarpEvents events[kWarps];
  };
  unsigned pulses;
};

/// This block's part of one array.
template <class Device>
__device__ __forceinline__ void updateBlock(const Array<Device> &a, const PulseWords &p,
                                            const Partition &part, uint64_t *coincidences,
                                            UpdateMemory &shared) {
  const int64_t samples = p.sampleCount();
  if (samples == 0) return;
  if (threadIdx.x == 0) shared.pulses = 0;
  __syncthreads();
  const PulseLayout layout = *p.layout;
  const bool words = p.kind == PulseKind::Words && p.way == PulseWay::Both;
  const bool staged =
      words && layout.slots <= 31 && (!part.flat || kUpdateThreads / a.cols + 2 <= kStagedRows);
  unsigned pulses = 0;
  if (words && layout.slots == 1) {
    pulses = updateSparse(a, p, samples, part, shared.events[threadIdx.x >> 5]);
  } else if (staged) {
    pulses = updateDense(a, p, layout, samples, part, shared.stage);
  } else {
    for (int r = 0; r < part.rowsPerWarp; ++r) {
      const ThreadCell c = threadCell(a, part, r);
      if (c.live) pulses += updatePlain(c, a, p, layout, samples);
    }
  }
  const unsigned warpPulses = warpSum(pulses);
  if ((threadIdx.x & 31) == 0 && warpPulses) atomicAdd(&shared.pulses, warpPulses);
  __syncthreads();
  if (threadIdx.x == 0 && shared.pulses) {
    atomicAdd(reinterpret_cast<unsigned long long *>(coincidences),
              static_cast<unsigned long long>(shared.pulses));
  }
}

/// Updates several arrays in one launch, because small arrays together take no longer than one
/// alone. For up to two, the compiler knows the places of their parameters.
template <class Device, int kArrays>
__global__ void __launch_bounds__(kUpdateThreads, kBlocksPerProcessor)
    updateKernel(const __grid_constant__ ArrayUpdates<Device, kArrays> updates) {
  awaitEarlier();
  __shared__ UpdateMemory shared;
  unsigned block = blockIdx.x;
  if constexpr (kArrays <= 2) {
#pragma unroll
    for (int k = 0; k < kArrays; ++k) {
      const ArrayUpdate<Device> &u = updates.each[k];
      if (k + 1 == kArrays || block < u.blocks.count()) {
        updateBlock(u.array, u.words, u.blocks.at(block), u.coincidences, shared);
        return;
      }
      block -= u.blocks.count();
    }
  } else {
    int mine = 0;
#pragma unroll
    for (int k = 0; k + 1 < kArrays; ++k) {
      const unsigned blocks = updates.each[k].blocks.count();
      if (mine < k || block < blocks) continue;
      block -= blocks;
      mine = k + 1;
    }
    const ArrayUpdate<Device> &u = updates.each[mine];
    updateBlock(u.array, u.words, u.blocks.at(block), u.coincidences, shared);
  }
}

}  // namespace gpu
}  // namespace pulsora
