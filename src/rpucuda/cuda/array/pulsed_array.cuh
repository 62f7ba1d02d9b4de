#pragma once

#include "array/pulsed_kernels.h"
#include "core/half.h"
#include "cuda/core/launch.cuh"
#include "devices/pulse_rule.h"

// What the update kernels share: an array of cells as a launch sees it, and which thread treats
// which cell.

namespace RPU {
namespace gpu {

constexpr int kUpdateThreads = 128;
constexpr int kWarps = kUpdateThreads / 32;

/// A CellArray whose parameters travel with the launch.
template <class Device>
struct Array {
  using Cell = typename Device::Cell;
  static constexpr int kMembers = sizeof(Cell) / sizeof(float);

  /// The stored members of one cell, two to a word.
  struct Stored {
    uint32_t words[(kMembers + 1) / 2];
  };

  int64_t rows;
  int64_t cols;
  float *weights;
  const uint16_t *cells;
  RandomKey key;
  RoundKeys rounds;  // of the key
  typename Device::Params params;

  static Array of(const SampledCells &a, float *weights = nullptr) {
    return {a.rows,
            a.cols,
            weights,
            a.cells,
            a.key,
            roundKeys(a.key),
            paramsOf<typename Device::Params>(*a.params)};
  }
  static Array of(const CellArray &a) { return of(a, a.weights); }
  __device__ int64_t size() const { return rows * cols; }
  __device__ Stored stored(int64_t i) const {
    Stored s;
#pragma unroll
    for (int m = 0; m < kMembers; m += 2) {
      const uint32_t low = cells[i + m * size()];
      const uint32_t high = m + 1 < kMembers ? cells[i + (m + 1) * size()] : 0u;
      s.words[m / 2] = low | high << 16;
    }
    return s;
  }
  __device__ static Cell cell(const Stored &s) {
    Cell cell;
    int m = 0;
    cell.members([&](const char *, float &value) {
      value = halfToFloat(static_cast<uint16_t>(s.words[m / 2] >> 16 * (m % 2)));
      ++m;
    });
    return cell;
  }
  __device__ typename Device::Response response(const Stored &s) const {
    return Device::response(cell(s), params);
  }
  __device__ typename Device::Response response(int64_t i) const { return response(stored(i)); }
};

/// How blocks and warps share an array. A warp takes 32 neighbouring columns and `rowsPerWarp`
/// rows, so that a block shares the words of its lines; with `flat`, a block takes consecutive
/// cells of a narrow array. `blockX` and `blockY` are this block's place.
struct Partition {
  int rowsPerWarp;
  bool flat;
  int blockX;
  int blockY;
};

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
