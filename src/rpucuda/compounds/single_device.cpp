#include "compounds/single_device.h"

#include "compounds/array_ids.h"
#include "core/backend.h"
#include "core/math_util.h"
#include "array/cell_functors.h"

namespace RPU {
namespace {

RandomKey keyOf(uint64_t seed, uint32_t tileId, ArrayId array) {
  return makeKey(seed, tileId, static_cast<uint32_t>(array));
}

void copyMatrix(const Context &context, MatrixView<const float> from, MatrixView<float> to) {
  forEach(context, from.size(), ElementCopier{from, to});
}

}  // namespace

SingleDevice::SingleDevice(const Context &context, const TileConfig &config, int64_t dSize,
                           int64_t xSize, uint64_t seed, uint32_t tileId)
    : array_(context, config.device, dSize, xSize, keyOf(seed, tileId, ArrayId::Visible)),
      pass_(context, config.forward, config.backward, dSize, xSize,
            keyOf(seed, tileId, ArrayId::VisibleIo)),
      updater_(config.update, keyOf(seed, tileId, ArrayId::VisibleUpdate)) {}

void SingleDevice::forward(const Context &context, MatrixView<const float> x, MatrixView<float> y,
                           const Counters &c) {
  pass_.forward().run(context, array_.weights(), x, y, c.forwardSamples);
}

void SingleDevice::backward(const Context &context, MatrixView<const float> d, MatrixView<float> dx,
                            const Counters &c) {
  pass_.backward().run(context, array_.weights().transposed(), d, dx, c.backwardSamples);
}

void SingleDevice::update(const Context &context, MatrixView<const float> x,
                          MatrixView<const float> d, float lr, const Counters &c) {
  updater_.update(context, array_, x, d, lr, c.updateSamples);
}

void SingleDevice::postUpdate(const Context &context, float, const Counters &c) {
  array_.relax(context, c.miniBatches);
}

void SingleDevice::getWeights(const Context &context, MatrixView<float> out) const {
  copyMatrix(context, array_.weights(), out);
}

void SingleDevice::setWeights(const Context &context, MatrixView<const float> weights,
                              const Counters &c) {
  array_.setWeights(context, weights, c.events);
}

Value::Map SingleDevice::explain(const Context &context, MatrixView<const float> x,
                                 MatrixView<const float> d, float lr) const {
  return explainPulses(context, updater_.parameters(), array_.granularity(), x, d, lr);
}

Value::Map SingleDevice::statistics(const Context &context) const {
  return {{"pulses", Value(array_.pulseCount(context))},
          {"saturated_cells", Value(array_.saturatedCells(context))},
          {"memory_bytes", Value(static_cast<uint64_t>(array_.memoryBytes()))}};
}

void SingleDevice::saveTo(const Context &context, State &state, const std::string &prefix) const {
  array_.saveTo(context, state, prefix);
  pass_.forward().saveTo(context, state, prefix + "forward/");
  pass_.backward().saveTo(context, state, prefix + "backward/");
}

void SingleDevice::loadFrom(const Context &context, const State &state, const std::string &prefix) {
  array_.loadFrom(context, state, prefix);
  pass_.forward().loadFrom(context, state, prefix + "forward/");
  pass_.backward().loadFrom(context, state, prefix + "backward/");
}

IdealDevice::IdealDevice(const Context &context, const TileConfig &config, int64_t dSize,
                         int64_t xSize, uint64_t seed, uint32_t tileId)
    : dSize_(dSize),
      xSize_(xSize),
      weights_(Buffer<float>::zeros(context, dSize * xSize)),
      pass_(context, config.forward, config.backward, dSize, xSize,
            keyOf(seed, tileId, ArrayId::VisibleIo)) {}

void IdealDevice::forward(const Context &context, MatrixView<const float> x, MatrixView<float> y,
                          const Counters &c) {
  pass_.forward().run(context, weights(), x, y, c.forwardSamples);
}

void IdealDevice::backward(const Context &context, MatrixView<const float> d, MatrixView<float> dx,
                           const Counters &c) {
  pass_.backward().run(context, std::as_const(*this).weights().transposed(), d, dx,
                       c.backwardSamples);
}

void IdealDevice::update(const Context &context, MatrixView<const float> x,
                         MatrixView<const float> d, float lr, const Counters &) {
  if (x.rows == 0) return;
  scaled_.reserve(context, d.size());
  forEach(context, d.size(), ScaledCopier{d, -lr, scaled_.data()});
  accumulate(context, rowMajor<const float>(scaled_.data(), d.rows, d.cols).transposed(), x,
             weights());
}

void IdealDevice::getWeights(const Context &context, MatrixView<float> out) const {
  copyMatrix(context, weights(), out);
}

void IdealDevice::setWeights(const Context &context, MatrixView<const float> weights,
                             const Counters &) {
  copyMatrix(context, weights, this->weights());
}

Value::Map IdealDevice::explain(const Context &, MatrixView<const float> x, MatrixView<const float>,
                                float) const {
  return {{"samples", Value(x.rows)}, {"warnings", Value(Value::List{})}};
}

Value::Map IdealDevice::statistics(const Context &) const {
  return {{"pulses", Value(0)},
          {"saturated_cells", Value(0)},
          {"memory_bytes", Value(static_cast<uint64_t>(weights_.bytes()))}};
}

void IdealDevice::saveTo(const Context &context, State &state, const std::string &prefix) const {
  state.put(context, prefix + "weights", Tensor::Type::F32, {dSize_, xSize_}, weights_);
  pass_.forward().saveTo(context, state, prefix + "forward/");
  pass_.backward().saveTo(context, state, prefix + "backward/");
}

void IdealDevice::loadFrom(const Context &context, const State &state, const std::string &prefix) {
  state.take(context, prefix + "weights", Tensor::Type::F32, {dSize_, xSize_}, weights_);
  pass_.forward().loadFrom(context, state, prefix + "forward/");
  pass_.backward().loadFrom(context, state, prefix + "backward/");
}

}  // namespace RPU
