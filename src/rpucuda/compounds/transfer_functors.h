#pragma once

#include "core/view.h"
#include "numerics/math.h"

namespace pulsora {

/// W = sum over k of factors[k] W_k, for up to 8 arrays. Choppers give the fastest one, W_0, signs
/// of its lines.
struct ChainSum {
  static constexpr int kMost = 8;

  int count;
  const float *weights[kMost];
  float factors[kMost];
  const float *xSigns;  // [cols]; null: none
  const float *dSigns;  // [rows]
  MatrixView<float> out;

  PULSORA_HD void operator()(int64_t i) const {
    const int64_t row = i / out.cols;
    const int64_t col = i - row * out.cols;
    const float first = factors[0] != 0.0f ? factors[0] * weights[0][i] : 0.0f;
    float sum = xSigns ? xSigns[col] * dSigns[row] * first : first;
    for (int k = 1; k < count; ++k) {
      if (factors[k] != 0.0f) sum = pulsora::fma(factors[k], weights[k][i], sum);
    }
    out(row, col) = sum;
  }
};

}  // namespace pulsora
