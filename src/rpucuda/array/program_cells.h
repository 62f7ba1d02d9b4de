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

/// Targets of the cells of an array, and the rounds of reads and pulses that lead there. In each
/// round a cell is read. If its weight, as reads see it, is farther from its target than the
/// tolerance, the cell gets pulses towards it: as many as its mean step at that weight asks for
/// after two deviations of the write noise are taken off, at least 1 and at most `most` divided by
/// the number of the round. A cell that gets no pulse keeps its write noise.
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
};

/// A cell while a CellProgram is carried out for it: what was read of it, and the present round.
template <class Device>
struct CellUnderWay {
  int64_t cell;
  int64_t line;  // of those that are pulsed together
  float target;
  bool turned;  // whether reads see the negative weight
  float weight;
  float seen;  // by the last read
  typename Device::Response response;
  int round;             // rounds that have ended
  uint32_t sent;         // pulses of all rounds
  uint32_t pulses;       // of the present round
  uint32_t taken;        // of these
  bool up;               // their direction
  float z;               // their normal
  Philox4 stepWords;     // the random words of z: eight rounds share a block
  Philox4 writingWords;  // likewise, of the write noise

  PULSORA_HD float error() const { return target - seen; }
  PULSORA_HD bool isPulsed() const { return taken == pulses; }
};

/// Carries out a CellProgram for a cell: begin(), then in each round startRound(), pulse() until
/// the cell isPulsed(), and read(); at last end().
template <class Device>
struct ProgramCell {
  using UnderWay = CellUnderWay<Device>;
  CellProgram program;

  /// Reads cell i.
  template <class Array>
  PULSORA_HD UnderWay begin(const Array &a, int64_t i) const {
    const int64_t row = i / a.cols;
    const int64_t col = i - row * a.cols;
    UnderWay c{};
    c.cell = i;
    c.line = program.byColumns ? col : row;
    c.target = program.targets(row, col);
    c.turned = program.frame.signs && program.frame.signs[col] < 0.0f;
    c.weight = a.weights[i];
    c.seen = program.visible ? program.visible[i] : c.weight;
    return c;
  }

  /// Decides the pulses of a round, and takes them if they have a closed form. False if the cell
  /// gets no more pulses.
  template <class Array>
  PULSORA_HD bool startRound(const Array &a, UnderWay &c) const {
    const float error = c.error();
    if (c.round == program.rounds || pulsora::abs(error) <= program.tolerance) return false;
    if (c.sent == 0) c.response = a.response(c.cell);
    c.up = (error > 0.0f) != c.turned;
    const int n = pulsesTowards(a, c, error);
    if (n == 0) return false;
    const uint64_t sample = sampleOf(c);
    if (c.round == 0 || (sample & 7U) == 0)
      c.stepWords = wordsOf(a, Purpose::CycleNoise, c, sample);
    c.z = normalOf(c.stepWords, static_cast<uint32_t>(sample));
    c.pulses = static_cast<uint32_t>(n);
    c.sent += c.pulses;
    const PulseSum sum = pulseSum(static_cast<float>(n), a.params);
    c.taken =
        takesClosedForm<Device>(c.weight, sum, c.up, c.response, a.params, c.z) ? c.pulses : 0;
    const int64_t lines = program.byColumns ? a.cols : a.rows;
    atomicRaiseTo(program.longest + c.round * lines + c.line, c.pulses);
    return true;
  }

  /// Gives the cell at most eight pulses of its round.
  template <class Array>
  PULSORA_HD void pulse(const Array &a, UnderWay &c) const {
    const uint32_t to = c.taken + 8 < c.pulses ? c.taken + 8 : c.pulses;
    c.weight = sequentialPulses<Device>(c.weight, c.taken, to, c.up, c.response, a.params, c.z,
                                        a.key, static_cast<uint64_t>(c.cell), sampleOf(c));
    c.taken = to;
  }

  /// Reads the cell at the end of a round.
  template <class Array>
  PULSORA_HD void read(const Array &a, UnderWay &c) const {
    c.seen = program.frame.seen(c.weight, c.cell);
    if (program.writeNoise > 0.0f) {
      const uint64_t sample = sampleOf(c) + 1;
      if (c.round == 0 || (sample & 7U) == 0)
        c.writingWords = wordsOf(a, Purpose::WriteNoise, c, sample);
      const float xi = normalOf(c.writingWords, static_cast<uint32_t>(sample));
      c.seen = pulsora::fma(program.writeNoise, xi, c.seen);
    }
    ++c.round;
  }

  /// Stores the cell, and adds what it took to `mine` (without slots and the largest number of
  /// pulses, which go to the program's own memory). Returns the number of pulses.
  template <class Array>
  PULSORA_HD uint32_t end(const Array &a, const UnderWay &c, ProgramCounts &mine) const {
    if (c.sent > 0) {
      a.weights[c.cell] = c.weight;
      if (program.visible) program.visible[c.cell] = c.seen;
      atomicRaiseTo(&program.counts->most, static_cast<uint64_t>(c.sent));
    }
    count(c.error(), static_cast<uint64_t>(c.round) + 1, mine);
    return c.sent;
  }

 private:
  /// The pulses of one round. 0 where they cannot help: at a bound, unless new write noise may, and
  /// within half a step of the target, unless steps differ from pulse to pulse.
  template <class Array>
  PULSORA_HD int pulsesTowards(const Array &a, const UnderWay &c, float error) const {
    const float moved = Device::pulse(c.weight, c.up, c.response, a.params, 0.0f);
    const float step = pulsora::abs(clipWeight(moved, c.response) - c.weight);
    const float rest = pulsora::max(pulsora::abs(error) - 2.0f * program.writeNoise, 0.0f);
    if (step == 0.0f) return program.writeNoise > pulsora::abs(error) ? 1 : 0;
    const bool varies = program.writeNoise > 0.0f || a.params.dw_min_std > 0.0f;
    if (!varies && 2.0f * pulsora::abs(error) < step) return 0;
    const float most = program.most / static_cast<float>(c.round + 1);
    return static_cast<int>(pulsora::max(pulsora::rint(pulsora::min(rest / step, most)), 1.0f));
  }
  PULSORA_HD uint64_t sampleOf(const UnderWay &c) const {
    return program.firstSample + static_cast<uint64_t>(c.round);
  }
  /// The block of random words that holds a sample's, as normalOfSample() draws it.
  template <class Array>
  PULSORA_HD Philox4 wordsOf(const Array &a, Purpose purpose, const UnderWay &c,
                             uint64_t sample) const {
    return draw(a.key, purpose, static_cast<uint64_t>(c.cell), sample >> 3, 0);
  }
  PULSORA_HD void count(float error, uint64_t reads, ProgramCounts &mine) const {
    constexpr float kMost = ProgramCounts::kMostError;
    const float parts = error / program.tolerance * ProgramCounts::kErrorParts;
    const auto whole =
        static_cast<int64_t>(pulsora::rint(pulsora::max(pulsora::min(parts, kMost), -kMost)));
    ++mine.cells;
    mine.outside += pulsora::abs(error) > program.tolerance;
    mine.reads += reads;
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

/// Adds up the time slots of a program's lines and rounds.
struct SlotAdder {
  const uint32_t *longest;
  ProgramCounts *counts;

  PULSORA_HD void operator()(int64_t i) const {
    if (longest[i] > 0) atomicAddTo(&counts->slots, static_cast<uint64_t>(longest[i]));
  }
};

}  // namespace pulsora
