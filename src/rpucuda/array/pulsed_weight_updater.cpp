#include "array/pulsed_weight_updater.h"

#include <algorithm>
#include <vector>

#include "core/reduce.h"

namespace RPU {

void PulsedWeightUpdater::update(const Context &context, PulsedDevice &device,
                                 MatrixView<const float> x, MatrixView<const float> d, float lr,
                                 uint64_t firstSample) {
  update(context, device, x, d, lr, SampleRange{firstSample, x.rows, nullptr});
}

void PulsedWeightUpdater::update(const Context &context, PulsedDevice &device,
                                 MatrixView<const float> x, MatrixView<const float> d, float lr,
                                 const SampleRange &samples) {
  RPU_CHECK(InputError, x.cols == device.cols() && d.cols == device.rows(), "x has ", x.cols,
            " columns and d has ", d.cols, "; this array is [", device.rows(), ", ", device.cols(),
            "]");
  const PulseType type = parameters_.pulse_type;
  if (isDigital(type)) {
    device.applyOuterProduct(context, x, d, lr, type == PulseType::NoneWithDevice,
                             samples.first + static_cast<uint64_t>(samples.room));
    return;
  }
  bitLineMaker_.makeWords(context, x, d, lr, device.granularity(), parameters_, key_, samples);
  device.applyPulses(context, bitLineMaker_.words());
}

TrainJob PulsedWeightUpdater::start(const Context &context, const PulsedDevice &device,
                                    MatrixView<const float> x, MatrixView<const float> d, float lr,
                                    uint64_t firstSample) {
  return bitLineMaker_.startWords(context, x, d, lr, device.granularity(), parameters_,
                                  SampleRange{firstSample, x.rows, nullptr});
}

int PulsedWeightUpdater::trainSides(const Context &context, MatrixView<const float> x,
                                    MatrixView<const float> d, float lr, TrainSide *sides) {
  return bitLineMaker_.trainSides(context, x, d, lr, parameters_, key_, sides);
}

Value::Map explainPulses(const Context &context, const UpdateParameters &parameters,
                         float granularity, MatrixView<const float> x, MatrixView<const float> d,
                         float lr) {
  const auto m = static_cast<size_t>(x.rows);
  Buffer<float> maxima(context, 2 * x.rows);
  rowAbsMax(context, x, maxima.data());
  rowAbsMax(context, d, maxima.data() + m);
  std::vector<float> host(2 * m);
  detail::copyToHost(context, host.data(), maxima.data(), maxima.bytes());
  double length = 0.0;
  double strength = 0.0;
  double largestX = 0.0;
  double largestD = 0.0;
  int longest = 0;
  int64_t clipped = 0;
  for (size_t s = 0; s < m; ++s) {
    const TrainScale t = trainScale(parameters, RPU::abs(lr), granularity, host[s], host[m + s]);
    length += t.length;
    strength += static_cast<double>(t.strength);
    longest = std::max(longest, t.length);
    largestX = std::max(largestX, static_cast<double>(RPU::min(t.xScale * host[s], 1.0f)));
    largestD = std::max(largestD, static_cast<double>(RPU::min(t.dScale * host[m + s], 1.0f)));
    clipped += trainsClip(t, host[s], host[m + s]);
  }
  const double samples = std::max<double>(1.0, static_cast<double>(m));
  Value::List warnings;
  if (clipped > 0) {
    warnings.emplace_back(message(
        clipped, " of ", m, " samples need more pulses than their trains hold (largest element: ",
        strength / samples, " pulses on average, desired_bl ", parameters.desired_bl,
        "), so their largest updates are clipped; raise desired_bl or dw_min, or lower lr"));
  }
  if (strength / samples < 0.1 && strength > 0.0) {
    warnings.emplace_back(message(
        "the largest element of a sample asks for ", strength / samples,
        " pulses on average: dw_min ", granularity,
        " is coarse for this update, which then is mostly noise; lower dw_min or raise lr"));
  }
  return {{"samples", Value(static_cast<int64_t>(m))},
          {"mean_bl", Value(length / samples)},
          {"longest_bl", Value(longest)},
          {"mean_pulses_of_largest", Value(strength / samples)},
          {"largest_x_probability", Value(largestX)},
          {"largest_d_probability", Value(largestD)},
          {"clipped_samples", Value(clipped)},
          {"warnings", Value(std::move(warnings))}};
}

}  // namespace RPU
