#include "compounds/single.h"

#include "linalg/math_util.h"

namespace pulsora {

std::unique_ptr<AnalogDevice> SingleParams::make(const CompoundSite &site) const {
  return retain(site, std::make_unique<SingleDevice>(*this, site));
}

SingleDevice::SingleDevice(const SingleParams &params, const CompoundSite &site)
    : visible_(site.context, params.device, site.dSize, site.xSize, site.periphery, site.keys, 0) {}

void SingleDevice::forward(const Context &context, MatrixView<const float> x, MatrixView<float> y,
                           const Counters &c) {
  visible_.run(context, Pass::Forward, x, y, c.forwardSamples);
}

void SingleDevice::backward(const Context &context, MatrixView<const float> d, MatrixView<float> dx,
                            const Counters &c) {
  visible_.run(context, Pass::Backward, d, dx, c.backwardSamples);
}

void SingleDevice::update(const Context &context, MatrixView<const float> x,
                          MatrixView<const float> d, float lr, const Counters &c) {
  visible_.update(context, x, d, lr, c.updateSamples);
}

bool SingleDevice::updateLooksForFaults(const Context &context, int64_t) const {
  return !context.onCpu() && !isDigital(visible_.updater().parameters().pulse_type);
}

void SingleDevice::getWeights(const Context &context, MatrixView<float> out) const {
  copy(context, visible_.weights(), out);
}

void SingleDevice::setWeights(const Context &context, MatrixView<const float> weights,
                              const Counters &c) {
  visible_.cells().setWeights(context, weights, c.events);
}

Value::Map SingleDevice::explain(const Context &context, MatrixView<const float> x,
                                 MatrixView<const float> d, float lr) const {
  return explainPulses(context, visible_.updater().parameters(), visible_.cells().granularity(), x,
                       d, lr);
}

void SingleDevice::saveTo(const Context &context, State &state, const std::string &prefix) const {
  visible_.saveTo(context, state, prefix);
}

void SingleDevice::loadFrom(const Context &context, const State &state, const std::string &prefix) {
  visible_.loadFrom(context, state, prefix);
}

}  // namespace pulsora
