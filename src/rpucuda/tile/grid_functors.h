#pragma once

#include <cstdint>

#include "core/view.h"
#include "numerics/math.h"

// The element functors of a grid of tiles on a GPU. A block is the neighbouring columns of a batch
// that belong to one tile; the rows of a packed block have no gaps.

namespace pulsora {

/// The block of a column, and the reads [begin, end) of its columns (TileGrid).
struct GridColumn {
  int64_t first;
  int64_t count;
  int64_t begin;
  int64_t end;
};

/// *to = *from: the flag of a tile, to be copied to the host together with others.
struct FlagTaker {
  const uint32_t *from;
  uint32_t *to;

  PULSORA_HD void operator()(int64_t) const { *to = *from; }
};

/// Packs the blocks of a batch, one after another.
struct BlockPacker {
  MatrixView<const float> from;
  const GridColumn *columns;
  float *to;

  PULSORA_HD void operator()(int64_t i) const {
    const int64_t row = i / from.cols;
    const int64_t col = i % from.cols;
    const GridColumn c = columns[col];
    to[from.rows * c.first + row * c.count + (col - c.first)] = from(row, col);
  }
};

/// Sums the packed reads of the tiles that share a block, in the order of the tiles. The reads
/// before read number k have places[k] columns in all.
struct BlockSummer {
  const float *reads;
  const GridColumn *columns;
  const int64_t *places;
  MatrixView<float> to;

  PULSORA_HD void operator()(int64_t i) const {
    const int64_t row = i / to.cols;
    const int64_t col = i % to.cols;
    const GridColumn c = columns[col];
    const float *read = reads + row * c.count + (col - c.first);
    float sum = read[to.rows * places[c.begin]];
    for (int64_t k = c.begin + 1; k < c.end; ++k) sum += read[to.rows * places[k]];
    to(row, col) = sum;
  }
};

}  // namespace pulsora
