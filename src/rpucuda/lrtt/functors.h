#pragma once

#include "core/math.h"
#include "core/view.h"

// The element functors of the low-rank adapter.

namespace RPU {

/// Gradient of the gate of y += alpha A (gate .* g): alpha g .* e with e = A^T d.
struct GateGradient {
  float alpha;
  MatrixView<const float> g;
  const float *e;
  MatrixView<float> to;

  RPU_HD void operator()(int64_t i) const {
    const int64_t row = i / to.cols;
    const int64_t col = i % to.cols;
    to(row, col) = alpha * (g(row, col) * e[i]);
  }
};

}  // namespace RPU
