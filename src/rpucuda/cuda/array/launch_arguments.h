#pragma once

#include "array/pulsed_kernels.h"
#include "core/platform.h"

// Parameters of a launch of a device model's kernels, and the partition of an array among blocks,
// shared by the device half (cuda/array/model_kernels.cuh) and the host half
// (cuda/array/model_launches.h). Any C++ compiler reads this header.

namespace pulsora {
namespace gpu {

constexpr int kUpdateThreads = 128;
constexpr int kWarps = kUpdateThreads / 32;
constexpr int kStagedRows = 32;  // most rows of a block
constexpr int kCellThreads = 256;
constexpr int kLinesEach = 8;  // elements of lines that a thread looks at together, at most
constexpr int kProgramThreads = 128;
constexpr int kProgramSlots = 1024;  // cells of a block that are under way
constexpr int kMergeThreads = 128;
constexpr int kTileRows = 64;
constexpr int kTileCols = 32;
constexpr int kDeferredThreads = 128;

/// A CellArray whose parameters are passed with the launch.
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
  PULSORA_HOST_DEVICE int64_t size() const { return rows * cols; }
  // Defined by the device half (cuda/array/pulsed_array.cuh):
  PULSORA_HOST_DEVICE Stored stored(int64_t i) const;
  PULSORA_HOST_DEVICE static Cell cell(const Stored &s);
  PULSORA_HOST_DEVICE typename Device::Response response(const Stored &s) const;
  PULSORA_HOST_DEVICE typename Device::Response response(int64_t i) const;
};

/// Partition of an array among blocks and warps. A warp takes 32 neighbouring columns and
/// `rowsPerWarp` rows, so that a block shares the words of its lines; with `flat`, a block takes
/// consecutive cells of a narrow array. `blockX` and `blockY` are this block's place.
struct Partition {
  int rowsPerWarp;
  bool flat;
  int blockX;
  int blockY;
};

/// The blocks that share one array, numbered row by row (see Partition).
struct Blocks {
  int rowsPerWarp;
  bool flat;
  unsigned perRow;
  unsigned rows;

  static Blocks of(const CellArray &array) {
    constexpr int64_t kFewWarps = 1536;  // about three to a scheduler: fewer expose latencies
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
  PULSORA_HOST_DEVICE unsigned count() const { return perRow * rows; }
  PULSORA_HOST_DEVICE Partition at(unsigned block) const {
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

/// The arrays of a launch; their blocks are numbered one array after another. Unused entries have
/// no blocks.
template <class Device, int kArrays>
struct ArrayUpdates {
  ArrayUpdate<Device> each[kArrays];
};

}  // namespace gpu
}  // namespace pulsora
