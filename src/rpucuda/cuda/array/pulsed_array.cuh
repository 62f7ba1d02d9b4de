#pragma once

#include "cuda/array/launch_arguments.h"
#include "cuda/core/await.cuh"
#include "devices/pulse_rule.h"
#include "numerics/half.h"

// Access of kernels to an array, and the assignment of cells to the threads of an update.

namespace pulsora {
namespace gpu {

template <class Device>
PULSORA_HD typename Array<Device>::Stored Array<Device>::stored(int64_t i) const {
  Stored s;
#if PULSORA_DEVICE_CODE
#pragma unroll
#endif
  for (int m = 0; m < kMembers; m += 2) {
    const uint32_t low = cells[i + m * size()];
    const uint32_t high = m + 1 < kMembers ? cells[i + (m + 1) * size()] : 0u;
    s.words[m / 2] = low | high << 16;
  }
  return s;
}

template <class Device>
PULSORA_HD typename Array<Device>::Cell Array<Device>::cell(const Stored &s) {
  Cell cell;
  int m = 0;
  cell.members([&](const char *, float &value) {
    value = halfToFloat(static_cast<uint16_t>(s.words[m / 2] >> 16 * (m % 2)));
    ++m;
  });
  return cell;
}

template <class Device>
PULSORA_HD typename Device::Response Array<Device>::response(const Stored &s) const {
  return Device::response(cell(s), params);
}

template <class Device>
PULSORA_HD typename Device::Response Array<Device>::response(int64_t i) const {
  return response(stored(i));
}

/// The cell of one thread; lanes of a warp hold neighbours.
struct ThreadCell {
  int64_t index;
  int row;
  int col;
  bool live;  // threads beyond the array take part in steps of the whole warp or block only
};

/// Cell of thread `thread` of the block in row `r` of its warp.
template <class Device>
__device__ inline ThreadCell cellOfThread(const Array<Device> &a, Partition part, int r,
                                          int thread) {
  const int warp = thread >> 5;
  const int lane = thread & 31;
  ThreadCell c;
  if (part.flat) {
    c.index = static_cast<int64_t>(part.blockX) * kUpdateThreads + thread;
    c.row = static_cast<int>(c.index / a.cols);
    c.col = static_cast<int>(c.index % a.cols);
    c.live = c.index < a.size();
  } else {
    c.row = (part.blockY * part.rowsPerWarp + r) * kWarps + warp;
    c.col = part.blockX * 32 + lane;
    c.index = c.row * a.cols + c.col;
    c.live = c.row < a.rows && c.col < a.cols;
  }
  return c;
}

/// Cell of this thread in row `r` of its warp.
template <class Device>
__device__ inline ThreadCell threadCell(const Array<Device> &a, Partition part, int r) {
  return cellOfThread(a, part, r, static_cast<int>(threadIdx.x));
}

}  // namespace gpu
}  // namespace pulsora
