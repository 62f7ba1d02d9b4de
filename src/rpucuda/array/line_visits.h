#pragma once

#include <cstdint>

#include "numerics/random.h"
#include "pulses/pulse_words.h"

// Lines of an array that are read or pulsed one after another: which lines, and the arguments of
// the kernels that treat them.

namespace pulsora {

/// A run of visits to the lines of an array: visit v concerns one line, its column or its row.
/// Lines follow one another, or the first line of each event is drawn. Both are functions of the
/// visit's number, so that a run may be cut anywhere.
struct LineVisits {
  int64_t lines = 1;     // of the array
  int64_t count = 0;     // of visits
  uint64_t first = 0;    // number of visit 0
  uint64_t origin = 0;   // number of the visit that takes line 0, where lines follow one another
  int64_t together = 1;  // visits of one event; events begin at multiples of it
  bool random = false;   // the first line of each event is drawn
  RandomKey key{};       // of that draw
  /// While this word is not 0, visits change nothing; see Context::nonfiniteFlag. May be null.
  const uint32_t *fault = nullptr;

  PULSORA_HD bool changeNothing() const { return fault && *fault; }
  /// The line of visit v. A drawn line is uniform to 1 part in 2^32.
  PULSORA_HD int64_t line(int64_t v) const {
    const uint64_t number = first + static_cast<uint64_t>(v);
    const auto size = static_cast<uint64_t>(lines);
    if (!random) return static_cast<int64_t>((number - origin) % size);
    const uint64_t event = number / static_cast<uint64_t>(together);
    const uint64_t start = draw(key, Purpose::TransferSelect, 0, event).v[0] * size >> 32;
    return static_cast<int64_t>((start + number % static_cast<uint64_t>(together)) % size);
  }
  /// Whether no earlier visit of the run takes the same line.
  PULSORA_HD bool isFirst(int64_t v) const {
    if (!random) return v < lines;
    const int64_t mine = line(v);
    for (int64_t u = 0; u < v; ++u) {
      if (line(u) == mine) return false;
    }
    return true;
  }
  /// The next visit of the line of visit v; `count` or more if there is none.
  PULSORA_HD int64_t next(int64_t v) const {
    if (!random) return v + lines;
    const int64_t mine = line(v);
    for (++v; v < count && line(v) != mine;) ++v;
    return v;
  }
  /// The visits [begin, end) of this run.
  PULSORA_HD LineVisits part(int64_t begin, int64_t end) const {
    LineVisits some = *this;
    some.first = first + static_cast<uint64_t>(begin);
    some.count = end - begin;
    return some;
  }
};

/// The cells of the lines of an array [rows, cols]: cell k of a line lies in the k-th row of a
/// column, or in the k-th column of a row.
struct LineCells {
  bool columns;  // whether lines are columns
  int64_t rows;
  int64_t cols;

  PULSORA_HD int64_t others() const { return columns ? rows : cols; }
  PULSORA_HD int64_t cell(int64_t line, int64_t k) const {
    return columns ? k * cols + line : line * cols + k;
  }
};

/// Changes of the cells on visited lines: cell k of the line of visit v gets values[v * others +
/// k] pulses, negative ones down, as those of sample number firstSample + v; or, with `digital`,
/// that change of its weight, within its bounds.
struct LinePulses {
  LineVisits visits;
  bool columns;
  bool digital;
  const float *values;  // [visits.count, others]
  uint64_t firstSample;
};

/// Resets of the cells on visited lines. Planes and draws are those of a ResetEvent; visit v is
/// event number firstEvent + v.
struct LineResets {
  float probability = 0.0f;
  const uint16_t *resets = nullptr;
  uint64_t firstEvent = 0;
};

/// The stored weights of lines between the samples of a mini-batch: visit v sees its line after
/// sample firstTap + v / visits.together * every, and a reset may follow. The array itself does
/// not change.
struct LineTaps {
  LineVisits visits;
  bool columns;
  PulseWords words;  // of the mini-batch; without samples, all visits see the present weights
  int64_t firstTap;
  int64_t every;
  LineResets reset;
  float *values;  // [visits.count, others]; null if no one looks
  float *finals;  // [visits.count, others]: weights at the end of the mini-batch, in the place of
                  // the line's first visit; null if they are not needed

  /// The number of samples whose pulses visit v sees.
  PULSORA_HD int64_t samplesBefore(int64_t v) const {
    return words.samples == 0 ? 0 : firstTap + v / visits.together * every + 1;
  }
};

}  // namespace pulsora
