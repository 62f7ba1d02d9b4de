#include "compounds/ideal.h"

#include "array/cell_functors.h"
#include "core/backend.h"
#include "linalg/math_util.h"

namespace pulsora {

std::unique_ptr<AnalogDevice> IdealParams::make(const CompoundSite &site) const {
  return std::make_unique<IdealDevice>(site);
}

IdealDevice::IdealDevice(const CompoundSite &site)
    : dSize_(site.dSize),
      xSize_(site.xSize),
      weights_(Buffer<float>::zeros(site.context, site.dSize * site.xSize)),
      reads_(site.context, site.periphery.forward, site.periphery.backward, site.dSize, site.xSize,
             site.keys.ofRead(0, Role::Read)) {}

void IdealDevice::forward(const Context &context, MatrixView<const float> x, MatrixView<float> y,
                          const Counters &c) {
  reads_.forward().run(context, weights(), x, y, c.forwardSamples);
}

void IdealDevice::backward(const Context &context, MatrixView<const float> d, MatrixView<float> dx,
                           const Counters &c) {
  reads_.backward().run(context, std::as_const(*this).weights().transposed(), d, dx,
                        c.backwardSamples);
}

void IdealDevice::update(const Context &context, MatrixView<const float> x,
                         MatrixView<const float> d, float lr, const Counters &) {
  if (x.rows == 0) return;
  reserveUpdate(context, d.rows, lr);
  forEach(context, d.size(), ScaledCopier{d, -lr, scaled_.data()});
  accumulate(context, rowMajor<const float>(scaled_.data(), d.rows, d.cols).transposed(), x,
             weights());
}

void IdealDevice::reserveUpdate(const Context &context, int64_t samples, float) {
  scaled_.reserve(context, samples * dSize_);
}

void IdealDevice::getWeights(const Context &context, MatrixView<float> out) const {
  copy(context, weights(), out);
}

void IdealDevice::setWeights(const Context &context, MatrixView<const float> weights,
                             const Counters &) {
  copy(context, weights, this->weights());
}

Value::Map IdealDevice::statistics(const Context &) const {
  return {{"pulses", Value(0)},
          {"saturated_cells", Value(0)},
          {"memory_bytes", Value(static_cast<uint64_t>(memoryBytes()))}};
}

// Each mini-batch reads the weights twice, of 4 bytes each.
void IdealDevice::countHardware(const Counters &c, HardwareCounts &counts) const {
  countDigitalUpdates(c, counts);
  counts.addDigital(weightCells() * (c.forwardSamples + c.backwardSamples),
                    8 * weightCells() * c.miniBatches);
}

void IdealDevice::saveTo(const Context &context, State &state, const std::string &prefix) const {
  state.put(context, prefix + "weights", Tensor::Type::F32, {dSize_, xSize_}, weights_);
  reads_.forward().saveTo(context, state, prefix + "forward/");
  reads_.backward().saveTo(context, state, prefix + "backward/");
}

void IdealDevice::loadFrom(const Context &context, const State &state, const std::string &prefix) {
  state.take(context, prefix + "weights", Tensor::Type::F32, {dSize_, xSize_}, weights_);
  reads_.forward().loadFrom(context, state, prefix + "forward/");
  reads_.backward().loadFrom(context, state, prefix + "backward/");
}

}  // namespace pulsora
