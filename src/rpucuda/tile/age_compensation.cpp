#include "tile/age_compensation.h"

#include "core/backend.h"
#include "inference/compensation.h"
#include "inference/functors.h"
#include "linalg/math_util.h"

namespace pulsora {
namespace {

// Names in states.
constexpr const char *kFactors = "age_compensation/factors";
constexpr const char *kBaseline = "age_compensation/baseline";
constexpr const char *kTaken = "age_compensation/taken";

std::vector<float> onHost(const Context &context, const Buffer<float> &buffer) {
  std::vector<float> values(static_cast<size_t>(buffer.size()));
  detail::copyToHost(context, values.data(), buffer.data(), buffer.bytes());
  return values;
}

double sumOf(const std::vector<float> &values) {
  double sum = 0.0;
  for (const float value : values) sum += static_cast<double>(value);
  return sum;
}

}  // namespace

AgeCompensation::AgeCompensation(const Context &context, const AnalogDevice &device)
    : rule_(device.ageCompensation()),
      inputs_(device.xSize()),
      outputs_(device.dSize()),
      factor_(context, isOn() ? outputs_ : 0),
      baseline_(Buffer<float>::zeros(context, isOn() ? outputs_ : 0)) {
  end(context);
}

// The sum of the magnitudes of the one-hot readings of each output.
std::vector<float> AgeCompensation::readOut(const Context &context,
                                            const AnalogDevice &device) const {
  Buffer<float> weights(context, outputs_ * inputs_);
  if (!weights.data()) return {};  // no cells
  const MatrixView<float> seen = rowMajor(weights.data(), outputs_, inputs_);
  device.getWeights(context, seen);
  Buffer<double> sums(context, outputs_);
  sumRows(context, outputs_, inputs_, MagnitudeTerm{seen}, sums.data());
  std::vector<double> values(static_cast<size_t>(outputs_));
  detail::copyToHost(context, values.data(), sums.data(), sums.bytes());
  std::vector<float> readings(values.size());
  for (size_t i = 0; i < values.size(); ++i) readings[i] = static_cast<float>(values[i]);
  return readings;
}

void AgeCompensation::prepare(const Context &context, const AnalogDevice &device,
                              uint64_t changes) {
  if (!isOn() || taken_ == changes + 1) return;
  std::vector<float> baseline = readOut(context, device);
  const std::vector<float> factor = onHost(context, factor_);
  for (size_t i = 0; i < baseline.size(); ++i) baseline[i] *= factor[i];
  detail::copyFromHost(context, baseline_.data(), baseline.data(), baseline_.bytes());
  taken_ = changes + 1;
}

void AgeCompensation::measure(const Context &context, const AnalogDevice &device) {
  if (!isOn()) return;
  const std::vector<float> baseline = onHost(context, baseline_);
  const std::vector<float> now = readOut(context, device);
  const auto inputs = static_cast<double>(inputs_);
  const double cells = inputs * static_cast<double>(outputs_);
  std::vector<float> factor(now.size(),
                            compensationFactor(sumOf(baseline) / cells, sumOf(now) / cells));
  if (rule_ == RetentionCompensation::PerOutput) {
    for (size_t i = 0; i < factor.size(); ++i)
      factor[i] = compensationFactor(static_cast<double>(baseline[i]) / inputs,
                                     static_cast<double>(now[i]) / inputs);
  }
  detail::copyFromHost(context, factor_.data(), factor.data(), factor_.bytes());
}

void AgeCompensation::end(const Context &context) {
  if (isOn()) forEach(context, outputs_, Filler{1.0f, factor_.data()});
}

void AgeCompensation::apply(const Context &context, MatrixView<float> y) const {
  if (isOn()) scaleColumns(context, y, factor_.data(), y);
}

MatrixView<const float> AgeCompensation::scaled(const Context &context, MatrixView<const float> d) {
  if (!isOn()) return d;
  scaled_.reserve(context, d.size());
  const MatrixView<float> to = rowMajor(scaled_.data(), d.rows, d.cols);
  scaleColumns(context, d, factor_.data(), to);
  return to;
}

std::vector<float> AgeCompensation::factors(const Context &context) const {
  return isOn() ? onHost(context, factor_)
                : std::vector<float>(static_cast<size_t>(outputs_), 1.0f);
}

void AgeCompensation::saveTo(const Context &context, State &state) const {
  if (!isOn()) return;
  state.put(context, kFactors, Tensor::Type::F32, {outputs_}, factor_);
  state.put(context, kBaseline, Tensor::Type::F32, {outputs_}, baseline_);
  state.values[kTaken] = Value(taken_);
}

void AgeCompensation::loadFrom(const Context &context, const State &state) {
  if (!isOn()) return;
  taken_ = state.counter(kTaken);
  state.take(context, kFactors, Tensor::Type::F32, {outputs_}, factor_);
  state.take(context, kBaseline, Tensor::Type::F32, {outputs_}, baseline_);
}

}  // namespace pulsora
