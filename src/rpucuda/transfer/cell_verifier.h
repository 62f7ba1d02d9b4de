#pragma once

#include "array/cell_programmer.h"
#include "core/scratch.h"
#include "periphery/analog_read.h"
#include "transfer/verify_functors.h"

namespace pulsora {

/// The standard deviation of a reading of one cell through a periphery: of its output noise and
/// weight noise, and of the rounding of its ADC.
double readingError(const IOParameters &periphery);
/// Readings, at most kMostReads, whose mean has an error of at most half the tolerance.
int readsFor(const IOParameters &periphery, float tolerance);
constexpr int kMostReads = 16;

/// Program and verify of an array [rows, cols] whose cells are read through converters and noise.
/// Lines of the shorter side are driven with an input of 1, one after another; a reading is a mean
/// of several. A cell is done if its reading errs by acceptedError() at most. The others get pulses
/// by the rule of CellProgram, and are read again.
class CellVerifier {
 public:
  /// The periphery of the direction in which lines are driven must not be perfect, nor read in
  /// blocks. `forward` and `backward` are the array's.
  CellVerifier(const Context &context, const IOParameters &forward, const IOParameters &backward,
               int64_t rows, int64_t cols, const ReadKeys &keys, const ProgramSettings &settings,
               int reads);

  /// Whether columns are driven (a forward read), else rows.
  static bool drivesColumns(int64_t rows, int64_t cols) { return rows > cols; }
  int reads() const { return reads_; }
  /// The standard deviation of a mean of so many readings.
  double error() const { return error_; }
  /// Number of programs that there are numbers of reads for, half of them after begin() and half
  /// after goOn().
  uint64_t mostRuns() const;

  /// Reserves storage for the other functions.
  void reserve(const Context &context, const PulsedDevice &array);
  /// Reads all cells: the weights [rows, cols] from which targets are made. `run` is the number of
  /// this program.
  MatrixView<const float> begin(const Context &context, const PulsedDevice &array, uint64_t run);
  /// begin() of another program after run(): the last readings are its first.
  MatrixView<const float> goOn(const Context &context, uint64_t run);
  /// Leads the cells to `targets` [rows, cols]. Round r draws as sample firstSample + r of the
  /// array. Then `targets` hold what the last readings miss of them.
  void run(const Context &context, PulsedDevice &array, float *targets, uint64_t firstSample);
  /// Counts of the latest run(), in memory of its backend. The largest number of pulses is the sum
  /// over rounds of the largest in a round, which no cell exceeds.
  const ProgramCounts *counts() const { return counts_.data(); }

 private:
  /// Samples that the reads of one program take.
  uint64_t samplesPerRun() const;
  void restart(const Context &context, uint64_t run);
  void read(const Context &context, const VerifiedCells &cells, int round);

  int64_t rows_, cols_;
  ProgramSettings settings_;
  int reads_;
  double error_;
  uint64_t firstRead_ = 0;
  AnalogRead read_;
  CellProgrammer programmer_;
  ScratchBuffer<float> readings_, steered_;
  ScratchBuffer<uint8_t> done_;
  ScratchBuffer<ProgramCounts> counts_;  // one
};

}  // namespace pulsora
