#pragma once

#include "array/program_cells.h"
#include "core/atomics.h"
#include "periphery/one_hot_read.h"

// Program and verify by reads through a periphery: the functors of its rounds.

namespace pulsora {

/// Cells [rows, cols] that are led to targets, and what is known of them.
struct VerifiedCells {
  MatrixView<const float> weights;  ///< as reads see them
  const float *targets;
  float *readings;        ///< the last reading of each cell
  uint8_t *done;          ///< whether that was accepted; such cells are not read again
  ProgramCounts *counts;  ///< over all rounds
};

/// Reads each cell that is not done: the mean of `reads` readings of its line, one after another.
struct CellReadings {
  VerifiedCells cells;
  OneHotRead read;
  bool byColumns;  ///< whether columns are driven, else rows
  int reads;

  PULSORA_HD void operator()(int64_t i) const {
    if (cells.done[i]) return;
    const int64_t row = i / cells.weights.cols;
    const int64_t col = i - row * cells.weights.cols;
    OneHotRead each = read;
    double sum = 0.0;
    for (int n = 0; n < reads; ++n) {
      sum += static_cast<double>(byColumns ? each(row, col) : each(col, row));
      each.skip(static_cast<uint64_t>(byColumns ? cells.weights.cols : cells.weights.rows));
    }
    cells.readings[i] = static_cast<float>(sum / reads);
    atomicAddTo(&cells.counts->reads, static_cast<uint64_t>(reads));
  }
};

/// Marks the cells whose reading is accepted as done, and writes targets for a program that reads
/// exactly: as far from a cell's weight as its target is from its reading, or the weight itself, if
/// the cell is done and this is a round of pulses.
struct VerifySteering {
  VerifiedCells cells;
  bool sends;      ///< whether pulses follow
  float accepted;  ///< error of a cell that is done
  float *steered;

  PULSORA_HD void operator()(int64_t i) const {
    const float error = cells.targets[i] - cells.readings[i];
    if (pulsora::abs(error) <= accepted) cells.done[i] = 1;
    const float weight = cells.weights(i / cells.weights.cols, i % cells.weights.cols);
    steered[i] = sends && cells.done[i] ? weight : weight + error;
  }
};

/// Takes over the counts of a round, and the errors that it found.
struct RoundCounts {
  const ProgramCounts *round;
  ProgramCounts *counts;

  PULSORA_HD void operator()(int64_t) const {
    const uint64_t reads = counts->reads;
    const uint64_t slots = counts->slots + round->slots;
    const uint64_t most = counts->most + round->most;
    *counts = *round;
    counts->reads = reads;
    counts->slots = slots;
    counts->most = most;
  }
};

/// targets - readings, in the place of the targets.
struct MissingReadings {
  const float *readings;
  float *targets;

  PULSORA_HD void operator()(int64_t i) const { targets[i] -= readings[i]; }
};

}  // namespace pulsora
