#include <cmath>
#include <utility>

#include "inference/inference_device.h"

// The gains of the ADCs of an InferenceDevice.

namespace pulsora {

void InferenceDevice::setAdcGains(const Context &context, const std::vector<float> &gains) {
  const int64_t count = arraysOfRead() * dSize_;
  PULSORA_CHECK(ConfigError, gains.empty() || !pass_.forward().parameters().is_perfect,
                "forward.is_perfect reads without ADCs, which have no gains; set is_perfect=False");
  PULSORA_CHECK(InputError, gains.empty() || static_cast<int64_t>(gains.size()) == count,
                "there are ", gains.size(), " gains of ADCs; give ", count, ", for ",
                arraysOfRead(), " arrays of ", dSize_, " outputs");
  for (const float gain : gains)
    PULSORA_CHECK(InputError, std::isfinite(gain) && gain > 0.0f, "a gain of an ADC is ", gain,
                  "; give finite numbers above 0");
  Buffer<float> taken(context, static_cast<int64_t>(gains.size()));
  detail::copyFromHost(context, taken.data(), gains.data(), taken.bytes());
  gains_ = std::move(taken);
  useGains();
  if (status_ != Status::Programmed) return;
  // One-hot reads have the gains, too: compensation compares with a reference that was read so.
  points_.clear();
  realiseFirst(context, point_);
  setVariances(cellVariance());
}

std::vector<float> InferenceDevice::adcGains(const Context &context) const {
  std::vector<float> gains(static_cast<size_t>(arraysOfRead() * dSize_), 1.0f);
  detail::copyToHost(context, gains.data(), gains_.data(), gains_.bytes());
  return gains;
}

// Takes the gains of a state, which may have none.
void InferenceDevice::loadGains(const Context &context, const State &state,
                                const std::string &prefix) {
  const std::string name = prefix + kAdcGains;
  Buffer<float> taken(context, state.tensors.count(name) ? arraysOfRead() * dSize_ : 0);
  if (!taken.empty()) state.take(context, name, Tensor::Type::F32, {arraysOfRead(), dSize_}, taken);
  std::vector<float> gains(static_cast<size_t>(taken.size()));
  detail::copyToHost(context, gains.data(), taken.data(), taken.bytes());
  for (const float gain : gains)
    PULSORA_CHECK(StateError, std::isfinite(gain) && gain > 0.0f, "tensor '", name,
                  "' has the value ", gain, ", which is no gain of an ADC");
  gains_ = std::move(taken);
  useGains();
}

void InferenceDevice::useGains() {
  for (int k = 0; k < arraysOfRead(); ++k) {
    const float *gains = gains_.empty() ? nullptr : gains_.data() + k * dSize_;
    passOf(k).forward().setOutputGains(gains);
    readoutOf(k).setOutputGains(gains);
  }
}

}  // namespace pulsora
