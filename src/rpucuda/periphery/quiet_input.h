#pragma once

#include <cstdint>

#include "core/view.h"
#include "periphery/line_formulas.h"

namespace pulsora {

/// Element i as the DAC converts it without noise, in units of the inputs.
struct QuietInput {
  MatrixView<const float> in;
  const float *scale;
  InputConverter converter;
  MatrixView<float> out;

  PULSORA_HD void operator()(int64_t i) const {
    const int64_t row = i / in.cols;
    const int64_t col = i % in.cols;
    // The analyzer assumes a reserved buffer that has no elements.
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference)
    const float alpha = scale[row];
    out(row, col) = value(in(row, col), alpha);
  }
  PULSORA_HD float value(float x, float alpha) const {
    return alpha * convertedInput(converter, x, alpha, 0.0f, 0.5f);
  }
};

}  // namespace pulsora
