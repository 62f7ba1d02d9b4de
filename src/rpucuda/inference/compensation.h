#pragma once

#include "core/platform.h"
#include "parameters/field_types.h"

namespace pulsora {

/// The rule of drift compensation.
enum class Compensation { None, Global, PerOutput, ExactReference };
template <>
struct EnumNames<Compensation> {
  static constexpr const char *kNames[] = {"none", "global", "per_output", "exact_reference"};
};

/// How the one-hot reads of drift compensation are made.
enum class CompensationRead { Converters, Exact };
template <>
struct EnumNames<CompensationRead> {
  static constexpr const char *kNames[] = {"converters", "exact"};
};

/// The smallest mean magnitude of readings that counts, relative to the largest weight.
constexpr double kLeastReadout = 1e-4;

/// The factor on outputs whose readings had the mean magnitude `reference`, and have `now`.
PULSORA_HD float compensationFactor(double reference, double now) {
  const double then = reference < kLeastReadout ? kLeastReadout : reference;
  return static_cast<float>(then / (now < kLeastReadout ? kLeastReadout : now));
}

/// The terms of three sums over the outputs of a tile, whose mean weighs outputs by their scales:
/// of the readings at the reference, of those now, and of the scales.
struct WeightedReadings {
  const double *reference;
  const double *now;
  const float *scale;

  PULSORA_HD double operator()(int64_t sum, int64_t j) const {
    // Without a branch around loads, so that a GPU has several on their way.
    const double *readings = sum == 0 ? reference : now;
    const auto weight = static_cast<double>(scale[j]);
    const double weighted = weight * readings[j];
    return sum == 2 ? weight : weighted;
  }
};

/// factor[i] = the factor of output i, and outFactor[i] = scale[i] factor[i].
///
/// `reference` and `now` hold the sum over `inputs` readings of each output, in units of the
/// output's scale.
struct OutputCompensation {
  Compensation rule;
  const double *reference;
  const double *now;
  const double *sums;  ///< of WeightedReadings
  double inputs;
  const float *scale;
  float *factor;
  float *outFactor;

  PULSORA_HD void operator()(int64_t i) const {
    float own = 1.0f;
    if (rule == Compensation::PerOutput) {
      own = compensationFactor(reference[i] / inputs, now[i] / inputs);
    } else if (rule != Compensation::None && sums[2] > 0.0) {
      const double weight = sums[2] * inputs;
      own = compensationFactor(sums[0] / weight, sums[1] / weight);
    }
    factor[i] = own;
    outFactor[i] = scale[i] * own;
  }
};

}  // namespace pulsora
