#pragma once

#include "array/line_visits.h"
#include "core/view.h"
#include "numerics/math.h"
#include "pulses/coincidences.h"

// The element functors of line reads and of writes towards a target.

namespace pulsora {

/// An n x n unit matrix.
struct UnitMatrix {
  int64_t n;
  float *out;

  PULSORA_HD void operator()(int64_t i) const { out[i] = i / n == i % n ? 1.0f : 0.0f; }
};

/// out[i, j] = from(i, j) - target(i, j).
struct DifferenceWriter {
  MatrixView<const float> from;
  MatrixView<const float> target;
  float *out;

  PULSORA_HD void operator()(int64_t i) const {
    const int64_t row = i / from.cols;
    const int64_t col = i % from.cols;
    out[i] = from(row, col) - target(row, col);
  }
};

/// Takes the whole pulses of a cell, at most `most`, off its accumulated change, and writes their
/// change, negated. The accumulated change is limited to `range`, beyond which no cell could go.
struct WholePulses {
  MatrixView<float> accumulated;
  float granularity;
  float most;
  float range;
  float *out;
  const uint32_t *fault;  // see Context::nonfiniteFlag; may be null

  PULSORA_HD void operator()(int64_t i) const {
    if (fault && *fault) {
      out[i] = 0.0f;
      return;
    }
    float &change = accumulated(i / accumulated.cols, i % accumulated.cols);
    const float pulses = pulsora::min(pulsora::floor(pulsora::abs(change) / granularity), most);
    out[i] = change > 0.0f ? -(pulses * granularity) : pulses * granularity;
    change += out[i];
    if (!(pulsora::abs(change) <= range))
      change = change > 0.0f ? range : (change < 0.0f ? -range : 0.0f);
  }
};

/// The inputs of reads of visited lines, [visits, lines]: 1 on the line that is driven.
struct DrivenLines {
  LineVisits visits;
  float *out;

  PULSORA_HD void operator()(int64_t i) const {
    const int64_t v = i / visits.lines;
    out[i] = visits.line(v) == i - v * visits.lines ? 1.0f : 0.0f;
  }
};

/// The analog product of a read in which one line is driven: its weights times its input.
struct LineProduct {
  LineVisits visits;
  MatrixView<const float> in;  // [visits, lines], as converted
  const float *weights;        // [visits, others], of the visited lines
  MatrixView<float> sums;

  PULSORA_HD void operator()(int64_t i) const {
    const int64_t v = i / sums.cols;
    const int64_t k = i - v * sums.cols;
    sums(v, k) = weights[i] * in(v, visits.line(v));
  }
};

/// Sets all values to 1.
struct Ones {
  float *out;

  PULSORA_HD void operator()(int64_t i) const { out[i] = 1.0f; }
};

/// The signed pulses of cells on lines: coincidences of the line's train, the only one of its side,
/// and the other side's. Element i is sample i / others.
struct LineCounts {
  PulseWords words;
  bool columns;  // whether the line is an x line
  int64_t others;
  float *out;

  PULSORA_HD void operator()(int64_t i) const {
    const int64_t v = i / others;
    const int64_t k = i - v * others;
    out[i] = static_cast<float>(
        signedCoincidences(words, *words.layout, v, columns ? k : 0, columns ? 0 : k));
  }
};

/// Multiplies by a factor.
struct Scaler {
  float factor;
  float *values;

  PULSORA_HD void operator()(int64_t i) const { values[i] *= factor; }
};

/// a(i, j) b(i, j), for sums over rows.
struct ProductTerm {
  MatrixView<const float> a;
  MatrixView<const float> b;

  PULSORA_HD double operator()(int64_t i, int64_t j) const {
    return static_cast<double>(a(i, j)) * static_cast<double>(b(i, j));
  }
};

}  // namespace pulsora
