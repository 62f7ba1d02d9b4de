#pragma once

#include "cuda/array/update_dense.cuh"
#include "cuda/array/update_plain.cuh"
#include "cuda/array/update_sparse.cuh"

// The pulsed update on the GPU. A thread holds one cell in registers and walks through the
// mini-batch; the steps are those of devices/pulse_rule.h. Which of the three paths is taken
// depends on the pulses, which the kernel learns on the device.

namespace RPU {
namespace gpu {

static_assert(kRowsPerWarp * kWarps == kStagedRows, "see Blocks::of()");

// The compiler keeps to 64 registers for this many.
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
  if ((threadIdx.x & 31) == 0 && warpPulses) atomicAdd(&shared.pulses, warpPulses);
  __syncthreads();
  if (threadIdx.x == 0 && shared.pulses) {
    atomicAdd(reinterpret_cast<unsigned long long *>(coincidences),
              static_cast<unsigned long long>(shared.pulses));
  }
}

/// The blocks that share one array, numbered row by row (see Partition).
struct Blocks {
  int rowsPerWarp;
  bool flat;
  unsigned perRow;
  unsigned rows;

  static Blocks of(const CellArray &array) {
    constexpr int64_t kFewWarps = 1536;  // about three to a scheduler: below, latencies show
    const bool flat = array.cols < 32;
    const int64_t blocksOfCols = (array.cols + 31) / 32;
    int rowsPerWarp = 1;
    while (!flat && rowsPerWarp < kStagedRows / kWarps &&
           blocksOfCols * array.rows >= 2 * rowsPerWarp * kFewWarps)
      rowsPerWarp *= 2;
    const int64_t rowsPerBlock = int64_t{kWarps} * rowsPerWarp;
    const int64_t perRow =
        flat ? (array.size() + kUpdateThreads - 1) / kUpdateThreads : blocksOfCols;
    const int64_t rows = flat ? 1 : (array.rows + rowsPerBlock - 1) / rowsPerBlock;
    return {rowsPerWarp, flat, static_cast<unsigned>(perRow), static_cast<unsigned>(rows)};
  }
  __host__ __device__ unsigned count() const { return perRow * rows; }
  __device__ Partition at(unsigned block) const {
    const unsigned row = block / perRow;
    return {rowsPerWarp, flat, static_cast<int>(block - row * perRow), static_cast<int>(row)};
  }
};

/// One array of a launch.
template <class Device>
struct ArrayUpdate {
  Array<Device> array;
  PulseWords words;
  Blocks blocks;
  uint64_t *coincidences;
};

/// The arrays of a launch; their blocks are numbered one array after another. Unused ones have
/// none.
template <class Device, int kArrays>
struct ArrayUpdates {
  ArrayUpdate<Device> each[kArrays];
};

/// Updates several arrays in one launch, because small ones together take no longer than one alone.
/// For up to two, the compiler knows where the parameters of each lie.
template <class Device, int kArrays>
__global__ void __launch_bounds__(kUpdateThreads, kBlocksPerProcessor)
    updateKernel(const __grid_constant__ ArrayUpdates<Device, kArrays> updates) {
  awaitEarlier();
  __shared__ UpdateMemory shared;
  unsigned block = blockIdx.x;
#pragma unroll(kArrays <= 2 ? kArrays : 1)
  for (int k = 0; k < kArrays; ++k) {
    const ArrayUpdate<Device> &u = updates.each[k];
    if (k + 1 == kArrays || block < u.blocks.count()) {
      updateBlock(u.array, u.words, u.blocks.at(block), u.coincidences, shared);
      return;
    }
    block -= u.blocks.count();
  }
}

template <class Device, int kArrays>
void launchUpdates(const PulsedUpdate *updates, int count, void *stream) {
  ArrayUpdates<Device, kArrays> all{};
  unsigned blocks = 0;
  for (int k = 0; k < count; ++k) {
    const PulsedUpdate &u = updates[k];
    all.each[k] = {Array<Device>::of(u.array), u.words, Blocks::of(u.array), u.coincidences};
    blocks += all.each[k].blocks.count();
  }
  launch(stream, updateKernel<Device, kArrays>, blocks, kUpdateThreads, 0, all);
}

template <class Device>
void updateTogether(const PulsedUpdate *updates, int count, void *stream) {
  if (count == 1) {
    launchUpdates<Device, 1>(updates, count, stream);
  } else if (count == 2) {
    launchUpdates<Device, 2>(updates, count, stream);
  } else {
    launchUpdates<Device, kMostTogether>(updates, count, stream);
  }
}

template <class Device>
void update(const CellArray &array, const PulseWords &words, uint64_t *coincidences, int64_t,
            int64_t, void *stream) {
  const PulsedUpdate one{array, words, coincidences};
  launchUpdates<Device, 1>(&one, 1, stream);
}

}  // namespace gpu
}  // namespace RPU
