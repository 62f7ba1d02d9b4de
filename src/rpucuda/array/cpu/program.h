#pragma once

#include "array/cpu/lanes.h"
#include "array/program_cells.h"

// Program and verify on a CPU. Cells differ in the rounds that they need: those that have not
// reached their targets are taken together from round to round, so that vectors stay full.

namespace pulsora {
namespace cpu {

/// The rounds of a CellProgram for some cells.
template <Isa isa, class Device>
class ProgramRounds : public Lanes<isa, Device> {
  using Base = Lanes<isa, Device>;
  using Base::a_;
  using Base::cells_;
  using Base::w_;

 public:
  using typename Base::Params;
  static constexpr int kMostCells = 2048;

  PULSORA_HD ProgramRounds(const CellArray &array, const Params &params, const CellProgram &program)
      : Base(array, params), array_(Array<Device>::of(array)), work_{program} {}

  /// Carries out all rounds for cells [begin, end), at most kMostCells, and adds what they took to
  /// `mine` (without slots and the largest number of pulses, which go to the program's own memory).
  /// Returns the number of pulses.
  uint64_t run(int64_t begin, int64_t end, ProgramCounts &mine) {
    sent_ = 0;
    start(begin, end, mine);
    for (int round = 0; count_ > 0; ++round) step(round, mine);
    return sent_;
  }

 private:
  struct Waiting {
    ProgramState state;
    uint32_t row;
    uint32_t col;
  };

  int64_t cellOf(const Waiting &c) const { return int64_t{c.row} * a_.cols + c.col; }

  void start(int64_t begin, int64_t end, ProgramCounts &mine) {
    count_ = 0;
    int64_t row = begin / a_.cols;
    int64_t col = begin - row * a_.cols;
    for (int64_t i = begin; i < end; ++i) {
      const ProgramState state = work_.begin(array_, i, row, col);
      keep({state, static_cast<uint32_t>(row), static_cast<uint32_t>(col)}, 0, mine);
      if (++col == a_.cols) {
        col = 0;
        ++row;
      }
    }
  }

  /// Leaves a cell waiting for a round, or ends it.
  void keep(const Waiting &c, int round, ProgramCounts &mine) {
    if (round < work_.program.rounds && !work_.isDone(c.state, round)) {
      waiting_[count_++] = c;
    } else {
      finish(c, mine);
    }
  }
  void finish(const Waiting &c, ProgramCounts &mine) {
    work_.end(array_, cellOf(c), c.state, mine);
    if (c.state.sent == 0) return;
    atomicRaiseTo(&work_.program.counts->most, uint64_t{c.state.sent});
    sent_ += c.state.sent;
  }

  /// One round of all cells that wait.
  void step(int round, ProgramCounts &mine) {
    const int all = count_;
    const uint64_t sample = work_.sampleOf(round);
    count_ = 0;  // cells that go on move to the front
    for (int first = 0; first < all; first += kBlock) {
      const int lanes = all - first < kBlock ? all - first : kBlock;
      float n[kBlock];
      float z[kBlock];
      float xi[kBlock] = {};
      load(first, lanes);
      plan(lanes, round, n);
      drawNormals(Purpose::CycleNoise, sample, z);
      if (work_.program.writeNoise > 0.0f) drawNormals(Purpose::WriteNoise, sample + 1, xi);
      Base::template apply<false>(n, z, [&](int) { return sample; });
      for (int j = 0; j < lanes; ++j) {
        Waiting c = waiting_[first + j];
        const int pulses = static_cast<int>(pulsora::abs(n[j]));
        if (pulses == 0) {
          finish(c, mine);
          continue;
        }
        c.state.weight = w_[j];
        work_.read(cellOf(c), pulses, xi[j], c.state);
        work_.raiseLongest(array_, c.row, c.col, round, pulses);
        ++mine.reads;
        keep(c, round + 1, mine);
      }
    }
  }

  PULSORA_HD void load(int first, int lanes) {
    for (int j = 0; j < kBlock; ++j) {
      const Waiting &c = waiting_[first + (j < lanes ? j : 0)];
      cells_[j] = static_cast<uint32_t>(cellOf(c));
      w_[j] = c.state.weight;
      target_[j] = c.state.target;
      seen_[j] = c.state.seen;
      turned_[j] = work_.isTurned(c.col) ? 1U : 0U;
    }
    Base::respondOfCells();
  }

  /// The pulses of a round, negative for down.
  PULSORA_HD void plan(int lanes, int round, float (&n)[kBlock]) const {
    const ProgramCell<Device> work = work_;  // which stores to n do not change
    const Array<Device> array = array_;
    for (int j = 0; j < kBlock; ++j) {
      const ProgramState c{target_[j], w_[j], seen_[j], 0};
      const bool up = (c.error() > 0.0f) != (turned_[j] != 0U);
      const auto count = static_cast<float>(work.pulses(array, Base::response(j), c, up, round));
      n[j] = up ? count : -count;
    }
    for (int j = lanes; j < kBlock; ++j) n[j] = 0.0f;
  }

  /// The normals of a sample.
  PULSORA_HD void drawNormals(Purpose purpose, uint64_t sample, float (&z)[kBlock]) const {
    uint32_t group[kPhiloxBatch];
    for (uint32_t &g : group) g = static_cast<uint32_t>(sample >> 3);
    for (int j = 0; j < kBlock; j += kPhiloxBatch) {
      uint32_t cells[kPhiloxBatch];
      for (int k = 0; k < kPhiloxBatch; ++k) cells[k] = cells_[j + k];
      PhiloxBatch batch;
      drawBatch(a_.key, purpose, cells, group, static_cast<uint32_t>(sample >> 35), 0, batch);
      const uint32_t (&words)[kPhiloxBatch] = batch.words[(sample & 7U) >> 1];
      for (int k = 0; k < kPhiloxBatch; ++k) {
        const NormalPair pair = normalPair16(words[k]);
        z[j + k] = (sample & 1U) != 0 ? pair.z1 : pair.z0;
      }
    }
  }

  Array<Device> array_;
  ProgramCell<Device> work_;
  uint64_t sent_ = 0;
  int count_ = 0;
  Waiting waiting_[kMostCells];
  float target_[kBlock];
  float seen_[kBlock];
  uint32_t turned_[kBlock];
};

/// CellProgram for cells [begin, end).
template <Isa isa, class Device>
void programCells(const CellArray &a, const CellProgram &program, uint64_t *sent, int64_t begin,
                  int64_t end) {
  if (program.due && *program.due == 0) return;
  using Rounds = ProgramRounds<isa, Device>;
  const auto p = paramsOf<typename Device::Params>(*a.params);
  Rounds rounds(a, p, program);
  ProgramCounts mine{};
  uint64_t pulses = 0;
  for (int64_t i = begin; i < end; i += Rounds::kMostCells)
    pulses += rounds.run(i, pulsora::min(i + Rounds::kMostCells, end), mine);
  __atomic_fetch_add(sent, pulses, __ATOMIC_RELAXED);
  mine.addTo(program.counts);
}

}  // namespace cpu
}  // namespace pulsora
