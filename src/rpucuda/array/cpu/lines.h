#pragma once

#include "array/cpu/lanes.h"
#include "array/line_visits.h"

namespace pulsora {
namespace cpu {

/// Cells, not necessarily neighbours, that take the pulses of a sample each.
template <Isa isa, class Device>
class PulsedCells : public Lanes<isa, Device> {
  using Base = Lanes<isa, Device>;
  using Base::a_;
  using Base::cells_;

 public:
  using Base::Base;

  /// Adds a cell, which is not among those that were added since the last run(), with signed pulses
  /// n of a sample.
  PULSORA_HD void add(uint32_t cell, float n, uint64_t sample) {
    const auto high = static_cast<uint32_t>(sample >> 32);
    if (count_ == kBlock || high != high_) run();
    high_ = high;
    cells_[count_] = cell;
    n_[count_] = n;
    samples_[count_++] = static_cast<uint32_t>(sample);
  }

  /// Pulses the cells that were added since the last call.
  PULSORA_HD void run() {
    if (count_ == 0) return;
    Base::loadCells(count_);
    for (int j = count_; j < kBlock; ++j) {
      samples_[j] = samples_[0];
      n_[j] = 0.0f;
    }
    float z[kBlock];
    makeNormals(z);
    Base::template apply<false>(n_, z,
                                [&](int lane) { return uint64_t{high_} << 32 | samples_[lane]; });
    Base::storeCells(count_);
    count_ = 0;
  }

 private:
  PULSORA_HD void makeNormals(float (&z)[kBlock]) const {
    for (int j = 0; j < count_; j += kPhiloxBatch) {
      uint32_t cells[kPhiloxBatch];
      uint32_t low[kPhiloxBatch];
      float normals[kPhiloxBatch];
      for (int k = 0; k < kPhiloxBatch; ++k) cells[k] = cells_[j + k];
      for (int k = 0; k < kPhiloxBatch; ++k) low[k] = samples_[j + k];
      normalsOfSamples(a_.key, cells, low, high_, normals);
      for (int k = 0; k < kPhiloxBatch; ++k) z[j + k] = normals[k];
    }
    const int made = (count_ + kPhiloxBatch - 1) / kPhiloxBatch * kPhiloxBatch;
    for (int j = made; j < kBlock; ++j) z[j] = 0.0f;
  }

  int count_ = 0;
  uint32_t high_ = 0;  // upper half of the samples' numbers
  float n_[kBlock];
  uint32_t samples_[kBlock];
};

/// Lanes of values[0] to values[count - 1] that are not 0; at most 64.
PULSORA_HD uint64_t lanesNotZero(const float *values, int64_t count) {
  uint32_t words[kBlock] = {};
  if (count >= kBlock) {
    for (int j = 0; j < kBlock; ++j) words[j] = bitCast<uint32_t>(values[j]);
  } else {
    for (int64_t j = 0; j < count; ++j) words[j] = bitCast<uint32_t>(values[j]);
  }
  return lanesWith(words, 0x7fffffffU);
}

/// The elements [begin, end) of array/line_events.h of LinePulses that are not digital. Returns the
/// number of pulses.
template <Isa isa, class Device>
PULSORA_HD uint64_t pulseElements(const CellArray &a, const LinePulses &pulses, int64_t begin,
                                  int64_t end) {
  const LineVisits &visits = pulses.visits;
  if (visits.changeNothing()) return 0;
  const auto p = paramsOf<typename Device::Params>(*a.params);
  const LineCells cells{pulses.columns, a.rows, a.cols};
  const int64_t others = cells.others();
  PulsedCells<isa, Device> pulsed(a, p);
  uint64_t sent = 0;
  for (int64_t first = begin; first < end;) {
    int64_t v = first / others;
    const int64_t from = first - v * others;
    const int64_t to = end - v * others < others ? end - v * others : others;
    first += to - from;
    if (!visits.isFirst(v)) continue;
    const int64_t line = visits.line(v);
    while (v < visits.count) {
      const float *values = pulses.values + v * others;
      const uint64_t sample = pulses.firstSample + static_cast<uint64_t>(v);
      for (int64_t k = from; k < to; k += kBlock) {
        for (uint64_t left = lanesNotZero(values + k, to - k); left; left &= left - 1) {
          const int64_t at = k + __builtin_ctzll(left);
          const int n = static_cast<int>(values[at]);
          pulsed.add(static_cast<uint32_t>(cells.cell(line, at)), static_cast<float>(n), sample);
          sent += static_cast<uint64_t>(n < 0 ? -n : n);
        }
      }
      v = visits.next(v);
      if (v < visits.count) pulsed.run();  // the next visit may pulse the same cells
    }
  }
  pulsed.run();
  return sent;
}

}  // namespace cpu
}  // namespace pulsora
