#pragma once

#include <cstdint>

#include "core/view.h"
#include "numerics/half.h"
#include "numerics/math.h"
#include "numerics/random.h"

// Dropout, layer normalisation and rounding to 16 bits in a rollout, as functors of CPU and GPU.

namespace pulsora {

/// Factors of units in dropout (Gal and Ghahramani, NeurIPS 2016): one mask for all steps of a row.
/// Rows are `rowsPerSample` rows, drawn again and again with other masks.
struct DropoutMask {
  RandomKey key;  // of the member
  float share;    // of units that are dropped
  float scale;    // 1 / (1 - share), for the others
  int64_t firstRow;
  int64_t rowsPerSample;
  int64_t firstUnit;  // the place of unit 0 among all units with masks

  /// 0 or `scale`.
  PULSORA_HD float factor(int64_t row, int64_t unit) const {
    const int64_t r = firstRow + row;
    const auto place = static_cast<uint64_t>(firstUnit + unit);
    const Philox4 block =
        draw(key, Purpose::Dropout, place >> 2, static_cast<uint64_t>(r % rowsPerSample),
             static_cast<uint32_t>(r / rowsPerSample));
    return uniform(wordOf(block, static_cast<uint32_t>(place))) < share ? 0.0f : scale;
  }
};

/// values(i, j) times the factor of row i / rowsApart and unit j. NaN stays NaN.
struct Dropped {
  DropoutMask mask;
  MatrixView<float> values;
  int64_t rowsApart;  // adjacent rows that share a mask

  PULSORA_HD void operator()(int64_t i) const {
    const int64_t row = i / values.cols;
    const int64_t unit = i % values.cols;
    values(row, unit) = values(row, unit) * mask.factor(row / rowsApart, unit);
  }
};

/// The nearest number of 16 bits (binary16).
PULSORA_HD float nearestHalf(float x) { return halfToFloat(floatToHalf(x)); }

/// to = from, rounded to 16 bits.
struct RoundedToHalf {
  MatrixView<const float> from;
  MatrixView<float> to;

  PULSORA_HD void operator()(int64_t i) const {
    to(i / to.cols, i % to.cols) = nearestHalf(from(i / to.cols, i % to.cols));
  }
};

constexpr float kNormEpsilon = 1e-5f;  // added to the variance of a layer normalisation

/// Layer normalisation (Ba, Kiros and Hinton, 2016) of row i: (h - mean) / sqrt(variance + 1e-5)
/// gain + shift. The sums of a row are in double precision, in order.
struct NormalisedRow {
  MatrixView<const float> from;
  const float *gain;   // [H]
  const float *shift;  // [H]
  MatrixView<float> to;

  PULSORA_HD void operator()(int64_t i) const {
    const auto count = static_cast<double>(from.cols);
    double sum = 0.0;
    for (int64_t j = 0; j < from.cols; ++j) sum += static_cast<double>(from(i, j));
    const double mean = sum / count;
    double squares = 0.0;
    for (int64_t j = 0; j < from.cols; ++j) {
      const double apart = static_cast<double>(from(i, j)) - mean;
      squares += apart * apart;
    }
    const auto variance = static_cast<float>(squares / count);
    const float scale = 1.0f / sqrt(variance + kNormEpsilon);
    for (int64_t j = 0; j < from.cols; ++j) {
      const auto apart = static_cast<float>(static_cast<double>(from(i, j)) - mean);
      to(i, j) = apart * scale * gain[j] + shift[j];
    }
  }
};

}  // namespace pulsora
