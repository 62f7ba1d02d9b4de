#pragma once

#include "cuda/array/launch_arguments.h"
#include "cuda/core/await.cuh"
#include "devices/pulse_rule.h"

// Which thread of an update kernel treats which cell.

namespace RPU {
namespace gpu {

/// The cell of one thread; lanes of a warp hold neighbours.
struct ThreadCell {
  int64_t index;
  int row;
  int col;
  bool live;  // threads beyond the array take part in steps of the whole warp or block only
};

/// Cell of this thread in row `r` of its warp.
template <class Device>
__device__ inline ThreadCell threadCell(const Array<Device> &a, Partition part, int r) {
  const int warp = static_cast<int>(threadIdx.x >> 5);
  const int lane = static_cast<int>(threadIdx.x & 31);
  ThreadCell c;
  if (part.flat) {
    c.index = static_cast<int64_t>(part.blockX) * kUpdateThreads + threadIdx.x;
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

}  // namespace gpu
}  // namespace RPU
