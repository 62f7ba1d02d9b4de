#pragma once

#include "core/view.h"
#include "numerics/math.h"

// The element functors of additive reads.

namespace pulsora {

/// to(i, j) += alpha * from[i, j].
struct ScaledAdder {
  const float *from;
  float alpha;
  MatrixView<float> to;

  PULSORA_HD void operator()(int64_t i) const { add(i / to.cols, i % to.cols); }

  PULSORA_HD void add(int64_t row, int64_t col) const {
    float &target = to(row, col);
    target = pulsora::fma(alpha, from[row * to.cols + col], target);
  }
};

/// to[i, j] *= factor(i, j).
struct GateMultiplier {
  MatrixView<const float> factor;
  float *to;

  PULSORA_HD void operator()(int64_t i) const { to[i] *= factor(i / factor.cols, i % factor.cols); }
};

}  // namespace pulsora
