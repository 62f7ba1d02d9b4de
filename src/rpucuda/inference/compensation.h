#pragma once

#include <cstddef>
#include <vector>

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

/// Factors on the outputs: mean magnitudes of readings at a reference over those now.
///
/// `reference` and `now` hold the sum over `inputs` readings of each output, in units of the
/// output's scale; the mean of the tile weighs outputs by their scales.
inline std::vector<float> compensationFactors(Compensation rule, const std::vector<double> &now,
                                              const std::vector<double> &reference,
                                              const std::vector<float> &scales, double inputs) {
  const auto ratio = [](double then, double present) {
    const double low = present < kLeastReadout ? kLeastReadout : present;
    return static_cast<float>((then < kLeastReadout ? kLeastReadout : then) / low);
  };
  std::vector<float> factors(now.size(), 1.0f);
  if (rule == Compensation::None) return factors;
  if (rule == Compensation::PerOutput) {
    for (size_t i = 0; i < now.size(); ++i)
      factors[i] = ratio(reference[i] / inputs, now[i] / inputs);
    return factors;
  }
  double then = 0.0;
  double present = 0.0;
  double weight = 0.0;
  for (size_t i = 0; i < now.size(); ++i) {
    const double scale = static_cast<double>(scales[i]);
    then += scale * reference[i];
    present += scale * now[i];
    weight += scale * inputs;
  }
  const float factor = weight > 0.0 ? ratio(then / weight, present / weight) : 1.0f;
  factors.assign(now.size(), factor);
  return factors;
}

}  // namespace pulsora
