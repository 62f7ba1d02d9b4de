#pragma once

#include "core/view.h"

// The element functors of line reads and of writes towards a target.

namespace RPU {

/// An n x n unit matrix.
struct UnitMatrix {
  int64_t n;
  float *out;

  RPU_HD void operator()(int64_t i) const { out[i] = i / n == i % n ? 1.0f : 0.0f; }
};

/// out[i, j] = from(i, j) - target(i, j).
struct DifferenceWriter {
  MatrixView<const float> from;
  MatrixView<const float> target;
  float *out;

  RPU_HD void operator()(int64_t i) const {
    const int64_t row = i / from.cols;
    const int64_t col = i % from.cols;
    out[i] = from(row, col) - target(row, col);
  }
};

/// a(i, j) b(i, j), for sums over rows.
struct ProductTerm {
  MatrixView<const float> a;
  MatrixView<const float> b;

  RPU_HD double operator()(int64_t i, int64_t j) const {
    return static_cast<double>(a(i, j)) * static_cast<double>(b(i, j));
  }
};

}  // namespace RPU
