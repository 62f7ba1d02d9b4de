#pragma once

#include "array/cell_functors.h"
#include "array/line_visits.h"

// Element functors that copy the weights of visited lines.

namespace pulsora {

/// seen[i] = the weight of an array as a read of visited lines sees it; element i is cell i %
/// others of the line of visit i / others.
struct LineReader {
  LineVisits visits;
  LineCells cells;
  const float *weights;  // of the array, as reads see them
  float *seen;

  PULSORA_HD void operator()(int64_t i) const {
    const int64_t others = cells.others();
    seen[i] = weights[cells.cell(visits.line(i / others), i % others)];
  }
};

/// The weights that reads see for stored weights of tapped lines. Their write noise is that behind
/// the samples whose pulses they have seen.
struct TapReader {
  CellFrame frame;
  LineTaps taps;
  LineCells cells;
  float scale;  // of the write noise; 0: none
  RandomKey key;
  float *seen;

  PULSORA_HD void operator()(int64_t i) const {
    const int64_t others = cells.others();
    const int64_t v = i / others;
    const int64_t cell = cells.cell(taps.visits.line(v), i % others);
    const float w = frame.seen(taps.values[i], cell);
    const uint64_t event = taps.words.firstSample + static_cast<uint64_t>(taps.samplesBefore(v));
    seen[i] =
        scale > 0.0f
            ? pulsora::fma(
                  scale,
                  normalOfSample(key, Purpose::WriteNoise, static_cast<uint64_t>(cell), event), w)
            : w;
  }
};

/// Writes the weights of visited lines; of several visits to a line, the first one counts.
struct LineWriter {
  LineVisits visits;
  LineCells cells;
  const float *values;  // [visits.count, others]
  float *weights;

  PULSORA_HD void operator()(int64_t i) const {
    const int64_t others = cells.others();
    const int64_t v = i / others;
    if (visits.isFirst(v)) weights[cells.cell(visits.line(v), i % others)] = values[i];
  }
};

}  // namespace pulsora
