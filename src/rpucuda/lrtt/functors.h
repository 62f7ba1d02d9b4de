#pragma once

#include "core/math.h"
#include "core/random.h"
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

/// Normal values for a re-init, two per call: out[2 i] and out[2 i + 1], the latter where it
/// exists.
struct NormalPairWriter {
  RandomKey key;
  uint64_t number;  // of the re-init
  float deviation;
  int64_t size;
  float *out;

  RPU_HD void operator()(int64_t i) const {
    const Philox4 block = draw(key, Purpose::Reinit, static_cast<uint64_t>(i), number);
    const NormalPair pair = normalPair(block.v[0], block.v[1]);
    out[2 * i] = deviation * pair.z0;
    if (2 * i + 1 < size) out[2 * i + 1] = deviation * pair.z1;
  }
};

}  // namespace RPU
