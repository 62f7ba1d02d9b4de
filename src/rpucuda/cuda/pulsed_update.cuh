#pragma once

#include "cuda/update_dense.cuh"
#include "cuda/update_plain.cuh"
#include "cuda/update_sparse.cuh"

// The pulsed update on the GPU. A thread holds one cell in registers and walks through the
// mini-batch; the steps are those of devices/pulse_rule.h. Which of the three paths is taken
// depends on the pulses, which the kernel learns on the device.

namespace RPU {
namespace gpu {

// The compiler keeps to 64 registers for this many.
constexpr int kBlocksPerProcessor = 8;

template <class Device>
__global__ void __launch_bounds__(kUpdateThreads, kBlocksPerProcessor)
    updateKernel(const __grid_constant__ Array<Device> a, const __grid_constant__ PulseWords p,
                 Partition part, uint64_t *coincidences) {
  __shared__ union {
    Stage stage;
    WarpEvents events[kWarps];
  } shared;
  __shared__ unsigned blockPulses;
  const int64_t samples = p.sampleCount();
  if (samples == 0) return;
  if (threadIdx.x == 0) blockPulses = 0;
  __syncthreads();
  const PulseLayout layout = *p.layout;
  const bool words = p.kind == PulseKind::Words;
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
  const unsigned warpPulses = __reduce_add_sync(0xffffffffu, pulses);
  if ((threadIdx.x & 31) == 0 && warpPulses) atomicAdd(&blockPulses, warpPulses);
  __syncthreads();
  if (threadIdx.x == 0 && blockPulses) {
    atomicAdd(reinterpret_cast<unsigned long long *>(coincidences),
              static_cast<unsigned long long>(blockPulses));
  }
}

template <class Device>
void update(const CellArray &array, const PulseWords &words, uint64_t *coincidences, int64_t,
            int64_t, void *stream) {
  constexpr int64_t kFewWarps = 1536;  // about three to a scheduler: below, latencies show
  const bool flat = array.cols < 32;
  const int64_t blocksOfCols = (array.cols + 31) / 32;
  int rowsPerWarp = 1;
  while (!flat && rowsPerWarp < kStagedRows / kWarps &&
         blocksOfCols * array.rows >= 2 * rowsPerWarp * kFewWarps)
    rowsPerWarp *= 2;
  const int64_t rowsPerBlock = int64_t{kWarps} * rowsPerWarp;
  const int64_t blocksX =
      flat ? (array.size() + kUpdateThreads - 1) / kUpdateThreads : blocksOfCols;
  const int64_t blocksY = flat ? 1 : (array.rows + rowsPerBlock - 1) / rowsPerBlock;
  const dim3 grid(static_cast<unsigned>(blocksX), static_cast<unsigned>(blocksY));
  updateKernel<Device><<<grid, kUpdateThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      Array<Device>::of(array), words, Partition{rowsPerWarp, flat}, coincidences);
  RPU_CUDA(cudaGetLastError());
}

}  // namespace gpu
}  // namespace RPU
