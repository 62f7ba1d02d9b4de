#pragma once

#include "core/math.h"
#include "core/random.h"
#include "core/view.h"

// The element functors of the low-rank adapter and its transfer.

namespace RPU {

/// to(i, j) += alpha * from[i, j].
struct ScaledAdder {
  const float *from;
  float alpha;
  MatrixView<float> to;

  RPU_HD void operator()(int64_t i) const {
    float &target = to(i / to.cols, i % to.cols);
    target = RPU::fma(alpha, from[i], target);
  }
};

/// to[i, j] *= factor(i, j).
struct GateMultiplier {
  MatrixView<const float> factor;
  float *to;

  RPU_HD void operator()(int64_t i) const { to[i] *= factor(i / factor.cols, i % factor.cols); }
};

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
