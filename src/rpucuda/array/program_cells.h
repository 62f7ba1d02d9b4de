#pragma once

#include "array/cell_functors.h"
#include "core/atomics.h"
#include "devices/pulse_rule.h"

// Program and verify: cells are read and pulsed in turn until they lie at their targets.

namespace pulsora {

/// Counts of a CellProgram, over all of its cells. Errors are those of the last read, in units of
/// tolerance / kErrorParts and limited to kMostError, so that sums do not depend on their order.
struct ProgramCounts {
  uint64_t cells;
  uint64_t outside;  ///< cells that end farther from their target than the tolerance
  uint64_t reads;    ///< reads of a cell
  uint64_t slots;    ///< time slots of pulses, lines one after another
  uint64_t most;     ///< largest number of pulses of a cell
  int64_t error;     ///< sum of target - weight
  uint64_t square;   ///< sum of its squares
  uint64_t batches;  ///< of cells that a GPU's blocks have begun; 0 on a CPU

  static constexpr float kErrorParts = 256.0f;
  static constexpr float kMostError = 65536.0f;

  /// Adds the sums to those of other threads.
  PULSORA_HD void addTo(ProgramCounts *all) const {
    atomicAddTo(&all->cells, cells);
    atomicAddTo(&all->outside, outside);
    atomicAddTo(&all->reads, reads);
    atomicAddTo(&all->error, error);
    atomicAddTo(&all->square, square);
  }
};

/// The largest error of a cell that is done, when `round` of `rounds` rounds are over.
///
/// It is the tolerance in the first half of them, and then the tolerance times
/// rounds / (rounds - round). A cell whose target lies beyond its bounds meets the tolerance by
/// chance alone, through its write noise. The error that it may still hope for is inversely
/// proportional to the draws that are left.
PULSORA_HD float acceptedError(float tolerance, int round, int rounds) {
  if (2 * round < rounds) return tolerance;
  return tolerance * (static_cast<float>(rounds) / static_cast<float>(rounds - round));
}

/// Targets of the cells of an array, and the rounds of reads and pulses that lead there. In each
/// round a cell is read. If its weight, as reads see it, is farther from its target than
/// acceptedError(), the cell gets pulses towards it: as many as its mean step at that weight asks
/// for after two deviations of the write noise are taken off, at least 1 and at most `most` divided
/// by the number of the round. A cell that gets no pulse keeps its write noise.
///
/// A reading within two deviations of the target says little about the stored weight: one pulse,
/// which draws new write noise, serves the cell better than a move. The limits of later rounds are
/// smaller: a cell whose target lies beyond its bounds gets at most 4.8 `most` pulses in 64 rounds.
struct CellProgram {
  MatrixView<const float> targets;  // [rows, cols]
  float tolerance;
  int rounds;
  float most;
  uint64_t firstSample;  // round r draws as sample firstSample + r
  CellFrame frame;
  float *visible;     // weights that reads see; null if they are the stored ones
  float writeNoise;   // standard deviation
  bool byColumns;     // whether lines, whose cells are pulsed together, are columns
  uint32_t *longest;  // [rounds, lines]: most pulses of a cell of the line; 0 before
  ProgramCounts *counts;
  const uint32_t *due;  // one; nothing is done if it is 0. null: always due
};

/// A cell between the rounds of a CellProgram.
struct ProgramState {
  float target;
  float weight;
  float seen;     // the weight by its last read
  uint32_t sent;  // pulses of all rounds

  PULSORA_HD float error() const { return target - seen; }
};

/// The rounds of a CellProgram for one cell: begin(); then, until it isDone() or all rounds are
/// over, pulses(), which are applied, read() and raiseLongest(); and end(). If pulses() is 0, the
/// cell gets no further ones. The largest number of pulses goes to the program's own memory.
template <class Device>
struct ProgramCell {
  using Response = typename Device::Response;
  CellProgram program;

  /// Cell i before the first round.
  template <class Array>
  PULSORA_HD ProgramState begin(const Array &a, int64_t i, int64_t row, int64_t col) const {
    const float w = a.weights[i];
    return {program.targets(row, col), w, program.visible ? program.visible[i] : w, 0};
  }
  /// Whether a cell gets no more pulses after `round` rounds, which are fewer than all.
  PULSORA_HD bool isDone(const ProgramState &c, int round) const {
    return pulsora::abs(c.error()) <= acceptedError(program.tolerance, round, program.rounds);
  }
  /// Whether the weights of a column are the negative stored ones.
  PULSORA_HD bool isTurned(int64_t col) const {
    return program.frame.signs && program.frame.signs[col] < 0.0f;
  }
  /// The pulses of one round for a cell that is not done. 0 where they cannot help: at a bound,
  /// without write noise to be drawn anew, and within half a step of the target, unless steps
  /// differ from pulse to pulse.
  template <class Array>
  PULSORA_HD int pulses(const Array &a, const Response &r, const ProgramState &c, bool up,
                        int round) const {
    const float w = c.weight;
    const float error = pulsora::abs(c.error());
    const float step = pulsora::abs(clipWeight(Device::pulse(w, up, r, a.params, 0.0f), r) - w);
    const float rest = pulsora::max(error - 2.0f * program.writeNoise, 0.0f);
    if (step == 0.0f) return program.writeNoise > 0.0f ? 1 : 0;
    const bool varies = program.writeNoise > 0.0f || a.params.dw_min_std > 0.0f;
    if (!varies && 2.0f * error < step) return 0;
    const float most = program.most / static_cast<float>(round + 1);
    return static_cast<int>(pulsora::max(pulsora::rint(pulsora::min(rest / step, most)), 1.0f));
  }
  /// The sample that a round draws as; its write noise draws as the next one.
  PULSORA_HD uint64_t sampleOf(int round) const {
    return program.firstSample + static_cast<uint64_t>(round);
  }
  /// Reads a cell after the pulses of a round, with the normal xi of its write noise.
  PULSORA_HD void read(int64_t i, int pulses, float xi, ProgramState &c) const {
    c.seen = program.frame.seen(c.weight, i);
    if (program.writeNoise > 0.0f) c.seen = pulsora::fma(program.writeNoise, xi, c.seen);
    c.sent += static_cast<uint32_t>(pulses);
  }
  /// Makes `pulses` known to the slots of a round.
  template <class Array>
  PULSORA_HD void raiseLongest(const Array &a, int64_t row, int64_t col, int round,
                               int pulses) const {
    const int64_t lines = program.byColumns ? a.cols : a.rows;
    atomicRaiseTo(program.longest + round * lines + (program.byColumns ? col : row),
                  static_cast<uint32_t>(pulses));
  }
  /// Writes cell i, and counts it and its first read.
  template <class Array>
  PULSORA_HD void end(const Array &a, int64_t i, const ProgramState &c, ProgramCounts &mine) const {
    if (c.sent > 0) {
      a.weights[i] = c.weight;
      if (program.visible) program.visible[i] = c.seen;
    }
    constexpr float kMost = ProgramCounts::kMostError;
    const float parts = c.error() / program.tolerance * ProgramCounts::kErrorParts;
    const auto whole =
        static_cast<int64_t>(pulsora::rint(pulsora::max(pulsora::min(parts, kMost), -kMost)));
    ++mine.cells;
    ++mine.reads;
    mine.outside += pulsora::abs(c.error()) > program.tolerance;
    mine.error += whole;
    mine.square += static_cast<uint64_t>(whole * whole);
  }
};

/// Clears the numbers of a program before it runs: element `size` is the counts.
struct ProgramStart {
  uint32_t *longest;
  int64_t size;
  ProgramCounts *counts;

  PULSORA_HD void operator()(int64_t i) const {
    if (i < size) {
      longest[i] = 0;
    } else {
      *counts = {};
    }
  }
};

/// Adds up the time slots of a program's lines and rounds. Element i of work has every kParts-th of
/// the numbers.
struct SlotAdder {
  static constexpr int64_t kParts = 1024;

  const uint32_t *longest;
  int64_t size;
  ProgramCounts *counts;

  PULSORA_HD void operator()(int64_t i) const {
    uint64_t slots = 0;
    for (int64_t k = i; k < size; k += kParts) slots += longest[k];
    if (slots > 0) atomicAddTo(&counts->slots, slots);
  }
};

}  // namespace pulsora
