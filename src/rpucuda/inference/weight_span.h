#pragma once

#include "core/platform.h"
#include "core/view.h"
#include "numerics/math.h"

// Cells of one device whose range reaches from the smallest to the largest weight: a weight w, in
// units of the scale, is centre + half v, with v in [-1, 1] as a cell holds it.

namespace pulsora {

/// low[i], high[i] = the smallest and the largest number of row i; 0 of an empty row.
struct RowSpan {
  MatrixView<const float> w;
  float *low;
  float *high;

  PULSORA_HD void operator()(int64_t i) const {
    const VectorView<const float> row = w.row(i);
    float least = row.size > 0 ? row[0] : 0.0f;
    float most = least;
    for (int64_t j = 1; j < row.size; ++j) {
      least = pulsora::min(least, row[j]);
      most = pulsora::max(most, row[j]);
    }
    low[i] = least;
    high[i] = most;
  }
};

/// Turns the ends of the spans of rows into centres and halves: of each row its own, or of all rows
/// together, if the one element of work is `rows` long.
struct SpanMiddle {
  int64_t rows;  // that share a span
  float *low;    // becomes the centre
  float *high;   // becomes the half

  PULSORA_HD void operator()(int64_t i) const {
    float least = low[i * rows];
    float most = high[i * rows];
    for (int64_t k = i * rows + 1; k < (i + 1) * rows; ++k) {
      least = pulsora::min(least, low[k]);
      most = pulsora::max(most, high[k]);
    }
    const float centre = 0.5f * (least + most);
    const float half = 0.5f * (most - least);
    for (int64_t k = i * rows; k < (i + 1) * rows; ++k) {
      low[k] = centre;
      high[k] = half;
    }
  }
};

/// to[i] = v of the weight from[i]; 0 where the span has no length.
struct SpanTaker {
  const float *from;
  const float *centre;
  const float *half;
  int64_t cols;
  float *to;

  PULSORA_HD void operator()(int64_t i) const {
    const float h = half[i / cols];
    const float v = (from[i] - centre[i / cols]) / (h > 0.0f ? h : 1.0f);
    to[i] = h > 0.0f ? pulsora::clamp(v, -1.0f, 1.0f) : 0.0f;
  }
};

/// Turns v as a cell holds it into a weight, and its variance, if there is one, likewise.
struct SpanReader {
  const float *centre;
  const float *half;
  int64_t cols;
  float *weights;
  float *variance;  // may be null

  PULSORA_HD void operator()(int64_t i) const {
    const float h = half[i / cols];
    weights[i] = pulsora::fma(h, weights[i], centre[i / cols]);
    if (variance) variance[i] *= h * h;
  }
};

}  // namespace pulsora
