#pragma once

#include <cstdint>

#include "core/view.h"
#include "numerics/math.h"

// The element functions of the encoder and of a gated recurrent unit (docs/explain/forecasts.md has
// the formulas): at(i, j) computes column j of row i. They serve CPU and GPU.

namespace pulsora {

/// max(a, 0); NaN for NaN.
PULSORA_HD float rectified(float a) { return a > 0.0f ? a : (a == a ? 0.0f : a); }
/// 1 / (1 + e^-a).
PULSORA_HD float logistic(float a) { return 1.0f / (1.0f + exp(-a)); }

/// (1 - z) h + z n: the new state of a unit with gate z and candidate n.
PULSORA_HD float moved(float z, float h, float n) { return (1.0f - z) * h + z * n; }

/// out = rectified(sum + increment feedback); without an increment, rectified(sum).
struct Encoded {
  MatrixView<const float> sum;  // [b, X]
  const float *increment;       // [b], or null
  const float *feedback;        // [X]
  MatrixView<float> out;        // [b, X]

  PULSORA_HD void at(int64_t i, int64_t j) const {
    const float shift = increment ? increment[i] * feedback[j] : 0.0f;
    out(i, j) = rectified(increment ? sum(i, j) + shift : sum(i, j));
  }
  PULSORA_HD void operator()(int64_t i) const { at(i / out.cols, i % out.cols); }
};

/// The gates z and r of a unit that resets h before the product, and r h, the input of that
/// product.
struct GatesBefore {
  MatrixView<const float> in;         // [b, 3H]: x W + b of z, r, n
  MatrixView<const float> recurrent;  // [b, 2H]: h U of z, r
  MatrixView<const float> h;          // [b, H]
  MatrixView<float> z;                // [b, H]
  MatrixView<float> resetH;           // [b, H]: r h

  PULSORA_HD void at(int64_t i, int64_t j) const {
    const int64_t size = h.cols;
    z(i, j) = logistic(in(i, j) + recurrent(i, j));
    resetH(i, j) = logistic(in(i, size + j) + recurrent(i, size + j)) * h(i, j);
  }
  PULSORA_HD void operator()(int64_t i) const { at(i / h.cols, i % h.cols); }
};

/// h <- (1 - z) h + z n with n = tanh(in_n + (r h) Un).
struct StepBefore {
  MatrixView<const float> in;         // see GatesBefore
  MatrixView<const float> candidate;  // [b, H]: (r h) Un
  MatrixView<const float> z;
  MatrixView<const float> from;
  MatrixView<float> to;

  PULSORA_HD void at(int64_t i, int64_t j) const {
    const float n = tanh(in(i, 2 * to.cols + j) + candidate(i, j));
    to(i, j) = moved(z(i, j), from(i, j), n);
  }
  PULSORA_HD void operator()(int64_t i) const { at(i / to.cols, i % to.cols); }
};

/// h <- (1 - z) h + z n with n = tanh(in_n + r (h Un + cn)): a unit that resets after the product.
struct StepAfter {
  MatrixView<const float> in;         // see GatesBefore
  MatrixView<const float> recurrent;  // [b, 3H]: h U of z, r, n
  const float *bias;                  // cn [H]
  MatrixView<const float> from;
  MatrixView<float> to;

  PULSORA_HD void at(int64_t i, int64_t j) const {
    const int64_t size = to.cols;
    const float gate = logistic(in(i, j) + recurrent(i, j));
    const float reset = logistic(in(i, size + j) + recurrent(i, size + j));
    const float n = tanh(in(i, 2 * size + j) + reset * (recurrent(i, 2 * size + j) + bias[j]));
    to(i, j) = moved(gate, from(i, j), n);
  }
  PULSORA_HD void operator()(int64_t i) const { at(i / to.cols, i % to.cols); }
};

/// The outputs of a member after step j of its rollout: the increment, the sum of increments, and
/// the logarithm of the variance.
struct Heads {
  MatrixView<const float> read;  // [b, 2]: h wm, h wv
  const float *bias;             // bv
  float spread;                  // ln j
  float *increment;              // [b]
  float *sum;                    // [b]
  float *mean;                   // [b], `stride` apart, or null
  float *logVariance;            // likewise
  int64_t stride;

  PULSORA_HD void operator()(int64_t i) const {
    increment[i] = read(i, 0);
    sum[i] += read(i, 0);
    if (mean) mean[i * stride] = sum[i];
    if (logVariance) logVariance[i * stride] = read(i, 1) + *bias + spread;
  }
};

}  // namespace pulsora
