#pragma once

#include "array/program_cells.h"
#include "array/pulsed_device.h"
#include "core/scratch.h"

namespace pulsora {

/// Settings of program and verify.
struct ProgramSettings {
  float tolerance =
      0.0f;        ///< largest |target - weight| of a cell that is done; see acceptedError()
  int rounds = 1;  ///< most rounds of a read and pulses
  int most = 1;    ///< most pulses of a cell in a round
};

/// Programs the cells of arrays and verifies them by exact reads. Lines are those of the array's
/// shorter side; the cells of a line are pulsed together, each with its own number of pulses.
class CellProgrammer {
 public:
  /// Reserves storage for run() onto `array`, which then cannot run out of memory.
  void reserve(const Context &context, const PulsedDevice &array, int rounds);
  /// Leads the cells of `array` to `targets` [rows, cols], weights as reads see them. Round r draws
  /// as sample firstSample + r of the array. With `due`, a number on the backend of `context`,
  /// nothing happens if that is 0.
  void run(const Context &context, PulsedDevice &array, MatrixView<const float> targets,
           const ProgramSettings &settings, uint64_t firstSample, const uint32_t *due = nullptr);
  /// Counts of the latest run(), in memory of its backend.
  const ProgramCounts *counts() const { return counts_.data(); }

 private:
  ScratchBuffer<uint32_t> longest_;
  ScratchBuffer<ProgramCounts> counts_;  // one
};

}  // namespace pulsora
