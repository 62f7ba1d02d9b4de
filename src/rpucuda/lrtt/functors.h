#pragma once

#include "core/view.h"
#include "numerics/math.h"
#include "numerics/random.h"

// The element functors of the low-rank adapter.

namespace pulsora {

/// Gradient of the gate of y += alpha A (gate .* g): alpha g .* e with e = A^T d.
struct GateGradient {
  float alpha;
  MatrixView<const float> g;
  const float *e;
  MatrixView<float> to;

  PULSORA_HD void operator()(int64_t i) const {
    const int64_t row = i / to.cols;
    const int64_t col = i % to.cols;
    to(row, col) = alpha * (g(row, col) * e[i]);
  }
};

/// Flips each sign with a given probability.
struct SignDrawer {
  RandomKey key;
  uint64_t number;  // of the draw
  float probability;
  float *signs;

  PULSORA_HD void operator()(int64_t k) const {
    const Philox4 block = draw(key, Purpose::ChopperSwitch, static_cast<uint64_t>(k), number);
    signs[k] = uniform(block.v[0]) < probability ? -signs[k] : signs[k];
  }
};

}  // namespace pulsora
