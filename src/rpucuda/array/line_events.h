#pragma once

#include "array/cell_events.h"
#include "array/line_visits.h"
#include "devices/pulse_rule.h"
#include "pulses/coincidences.h"

// Work of kernels on the cells of visited lines: element i is cell i % others of the line of visit
// i / others. The element of a line's first visit treats all visits of the line in order; those of
// its other visits do nothing.

namespace pulsora {

/// Pulses of one sample, n of them with their sign, by the rule of devices/pulse_rule.h.
template <class Device, class Array>
PULSORA_HD float pulsedWeight(float w, int n, const typename Device::Response &r, const Array &a,
                              uint64_t cell, uint64_t sample) {
  const float z = normalOfSample(a.key, Purpose::CycleNoise, cell, sample);
  const int count = n < 0 ? -n : n;
  return applyPulses<Device>(w, count, n > 0, r, a.params, z, a.key, cell, sample);
}

/// Carries out LinePulses; returns the number of pulses.
template <class Device>
struct PulseLine {
  LinePulses pulses;

  /// Whether element i changes its cell.
  template <class Array>
  PULSORA_HD bool changes(const Array &a, int64_t i) const {
    const LineVisits &visits = pulses.visits;
    if (!visits.random && visits.count <= visits.lines) return pulses.values[i] != 0.0f;
    const int64_t others = LineCells{pulses.columns, a.rows, a.cols}.others();
    int64_t v = i / others;
    const int64_t k = i - v * others;
    if (!visits.isFirst(v)) return false;
    for (; v < visits.count; v = visits.next(v)) {
      if (pulses.values[v * others + k] != 0.0f) return true;
    }
    return false;
  }

  template <class Array>
  PULSORA_HD uint32_t operator()(const Array &a, int64_t i) const {
    const LineVisits &visits = pulses.visits;
    const LineCells cells{pulses.columns, a.rows, a.cols};
    const int64_t others = cells.others();
    int64_t v = i / others;
    const int64_t k = i - v * others;
    if (visits.changeNothing() || !visits.isFirst(v)) return 0;
    const int64_t cell = cells.cell(visits.line(v), k);
    typename Device::Response r{};
    float w = 0.0f;
    bool loaded = false;
    uint32_t sent = 0;
    for (; v < visits.count; v = visits.next(v)) {
      const float value = pulses.values[v * others + k];
      if (value == 0.0f) continue;
      if (!loaded) {
        r = a.response(cell);
        w = a.weights[cell];
        loaded = true;
      }
      if (pulses.digital) {
        w = clipWeight(w + value, r);
        continue;
      }
      const int n = static_cast<int>(value);
      w = pulsedWeight<Device>(w, n, r, a, static_cast<uint64_t>(cell),
                               pulses.firstSample + static_cast<uint64_t>(v));
      sent += static_cast<uint32_t>(n < 0 ? -n : n);
    }
    if (loaded) a.weights[cell] = w;
    return sent;
  }
};

/// Carries out LineTaps.
template <class Device>
struct TapLine {
  LineTaps taps;

  template <class Array>
  PULSORA_HD void operator()(const Array &a, int64_t i) const {
    const LineVisits &visits = taps.visits;
    const LineCells cells{taps.columns, a.rows, a.cols};
    const int64_t others = cells.others();
    const int64_t firstVisit = i / others;
    const int64_t k = i - firstVisit * others;
    if (!visits.isFirst(firstVisit)) return;
    const int64_t line = visits.line(firstVisit);
    const int64_t cell = cells.cell(line, k);
    const bool resets = taps.reset.probability > 0.0f && !visits.changeNothing();
    LazyResponse r;
    float w = a.weights[cell];
    int64_t sample = 0;
    for (int64_t v = firstVisit; v < visits.count; v = visits.next(v)) {
      w = after(a, r, w, line, k, cell, sample, taps.samplesBefore(v));
      sample = taps.samplesBefore(v);
      if (taps.values) taps.values[v * others + k] = w;
      if (resets) {
        w = resetCell(w, r.of(a, cell), a.params, taps.reset.resets, taps.reset.probability, a.key,
                      cell, taps.reset.firstEvent + static_cast<uint64_t>(v));
      }
    }
    if (taps.finals) {
      taps.finals[firstVisit * others + k] =
          after(a, r, w, line, k, cell, sample, taps.words.samples);
    }
  }

 private:
  /// The response of a cell, which is made when it is first needed: many cells get no pulse.
  class LazyResponse {
   public:
    template <class Array>
    PULSORA_HD const typename Device::Response &of(const Array &a, int64_t cell) {
      if (!made_) r_ = a.response(cell);
      made_ = true;
      return r_;
    }

   private:
    typename Device::Response r_{};
    bool made_ = false;
  };

  /// The weight w after the samples [begin, end).
  template <class Array>
  PULSORA_HD float after(const Array &a, LazyResponse &r, float w, int64_t line, int64_t k,
                         int64_t cell, int64_t begin, int64_t end) const {
    if (begin >= end) return w;
    const PulseLayout layout = *taps.words.layout;
    const int64_t row = taps.columns ? k : line;
    const int64_t col = taps.columns ? line : k;
    const auto next = [&](int64_t s) {
      return nextCoincidences(taps.words, layout, s, end, row, col);
    };
    for (int64_t s = next(begin); s < end; s = next(s + 1)) {
      const int n = signedCoincidences(taps.words, layout, s, row, col);
      if (n == 0) continue;
      w = pulsedWeight<Device>(w, n, r.of(a, cell), a, static_cast<uint64_t>(cell),
                               taps.words.firstSample + static_cast<uint64_t>(s));
    }
    return w;
  }
};

}  // namespace pulsora
