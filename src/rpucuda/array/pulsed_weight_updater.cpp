#include "array/pulsed_weight_updater.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "linalg/math_util.h"

namespace pulsora {

void PulsedWeightUpdater::update(const Context &context, PulsedDevice &device,
                                 MatrixView<const float> x, MatrixView<const float> d, float lr,
                                 uint64_t firstSample, Bounds bounds) {
  update(context, device, x, d, lr, SampleRange{firstSample, x.rows, nullptr}, bounds);
}

void PulsedWeightUpdater::update(const Context &context, PulsedDevice &device,
                                 MatrixView<const float> x, MatrixView<const float> d, float lr,
                                 const SampleRange &samples, Bounds bounds) {
  PULSORA_CHECK(InputError, x.cols == device.cols() && d.cols == device.rows(), "x has ", x.cols,
                " columns and d has ", d.cols, "; this array is [", device.rows(), ", ",
                device.cols(), "]");
  const PulseType type = parameters_.pulse_type;
  if (isDigital(type)) {
    device.applyOuterProduct(context, x, d, lr,
                             type == PulseType::NoneWithDevice ? bounds : Bounds::Never,
                             samples.first + static_cast<uint64_t>(samples.room));
    return;
  }
  makeWords(context, device.granularity(), x, d, lr, samples, device.slotCounter());
  device.applyPulses(context, bitLineMaker_.words());
}

void PulsedWeightUpdater::update(const Context &context, PulsedDevice &device,
                                 MatrixView<const float> x, MatrixView<const float> d, float lr,
                                 uint64_t firstSample, const LineTaps &taps, float *seen) {
  bitLineMaker_.makeWords(context, x, d, lr, device.granularity(), parameters_, key_,
                          SampleRange{firstSample, x.rows, nullptr}, device.slotCounter());
  device.applyPulses(context, bitLineMaker_.words(), taps, seen);
}

void PulsedWeightUpdater::reserve(const Context &context, PulsedDevice &device, int64_t samples,
                                  float lr) {
  device.reserveCells(context);
  if (isDigital(parameters_.pulse_type)) {
    device.reserveOuterProduct(context, samples);
  } else {
    bitLineMaker_.reserve(context, samples, device.cols(), device.rows(), lr, device.granularity(),
                          parameters_);
  }
}

PulseTrainJob PulsedWeightUpdater::start(const Context &context, PulsedDevice &device,
                                         MatrixView<const float> x, MatrixView<const float> d,
                                         float lr, uint64_t firstSample) {
  return bitLineMaker_.startWords(context, x, d, lr, device.granularity(), parameters_,
                                  SampleRange{firstSample, x.rows, nullptr}, device.slotCounter());
}

int PulsedWeightUpdater::trainSides(const Context &context, MatrixView<const float> x,
                                    MatrixView<const float> d, float lr, PulseTrainSide *sides) {
  return bitLineMaker_.trainSides(context, x, d, lr, parameters_, key_, sides);
}

namespace {

float largestOf(const float *values, int64_t count) {
  float largest = 0.0f;
  for (int64_t i = 0; i < count; ++i) largest = pulsora::max(largest, pulsora::abs(values[i]));
  return largest;
}

struct LineSums {
  double wanted = 0.0;    // |value|, over the lines
  double expected = 0.0;  // probability that a slot fires, over the lines
};

LineSums sumLines(const float *values, int64_t count, float scale) {
  LineSums sums;
  for (int64_t i = 0; i < count; ++i) {
    sums.wanted += static_cast<double>(pulsora::abs(values[i]));
    sums.expected += static_cast<double>(pulseProbability(values[i], scale, 0.0f, false, 0.0f));
  }
  return sums;
}

}  // namespace

Value::Map explainPulses(const Context &context, const UpdateParameters &parameters,
                         float granularity, MatrixView<const float> x, MatrixView<const float> d,
                         float lr, const char *rate) {
  constexpr double kNoticeable = 0.05;  // share of an update whose loss is worth a warning
  const std::vector<float> xs = onHost(context, x);
  const std::vector<float> ds = onHost(context, d);
  double length = 0.0;
  double strength = 0.0;
  double largestX = 0.0;
  double largestD = 0.0;
  double wanted = 0.0;
  double delivered = 0.0;
  int longest = 0;
  int64_t clipped = 0;
  for (int64_t s = 0; s < x.rows; ++s) {
    const float *xRow = xs.data() + s * x.cols;
    const float *dRow = ds.data() + s * d.cols;
    const float xMax = largestOf(xRow, x.cols);
    const float dMax = largestOf(dRow, d.cols);
    const PulseTrainScale t = trainScale(parameters, pulsora::abs(lr), granularity, xMax, dMax);
    length += t.length;
    strength += static_cast<double>(pulsora::min(t.strength, std::numeric_limits<float>::max()));
    longest = std::max(longest, t.length);
    largestX = std::max(largestX, static_cast<double>(pulsora::min(t.xScale * xMax, 1.0f)));
    largestD = std::max(largestD, static_cast<double>(pulsora::min(t.dScale * dMax, 1.0f)));
    const LineSums onX = sumLines(xRow, x.cols, t.xScale);
    const LineSums onD = sumLines(dRow, d.cols, t.dScale);
    const double sampleWanted = static_cast<double>(pulsora::abs(lr)) /
                                static_cast<double>(granularity) * onX.wanted * onD.wanted;
    wanted += sampleWanted;
    if (!isDigital(parameters.pulse_type) && trainsClip(t, xMax, dMax)) {
      ++clipped;
      delivered += static_cast<double>(t.length) * onX.expected * onD.expected;
    } else {
      delivered += sampleWanted;
    }
  }
  const double samples = std::max<double>(1.0, static_cast<double>(x.rows));
  const double lost = wanted > 0.0 ? 1.0 - delivered / wanted : 0.0;
  Value::List warnings;
  if (lost >= kNoticeable) {
    warnings.emplace_back(
        message(std::lround(100.0 * lost),
                " % of this update is lost, from its largest elements: ", clipped, " of ", x.rows,
                " samples need more pulses than their trains hold (the largest element ",
                std::round(10.0 * strength / samples) / 10.0, " on average, desired_bl is ",
                parameters.desired_bl, "); raise desired_bl or dw_min, or lower ", rate));
  }
  if (!isDigital(parameters.pulse_type) && strength / samples < 0.1 && strength > 0.0) {
    warnings.emplace_back(message(
        "the largest element of a sample asks for ", strength / samples,
        " pulses on average: dw_min ", granularity,
        " is coarse for this update, which then is mostly noise; lower dw_min or raise ", rate));
  }
  return {{"samples", Value(x.rows)},
          {"mean_bl", Value(length / samples)},
          {"longest_bl", Value(longest)},
          {"mean_pulses_of_largest", Value(strength / samples)},
          {"largest_x_probability", Value(largestX)},
          {"largest_d_probability", Value(largestD)},
          {"clipped_samples", Value(clipped)},
          {"undelivered", Value(lost)},
          {"warnings", Value(std::move(warnings))}};
}

}  // namespace pulsora
