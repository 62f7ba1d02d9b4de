#include "lrtt/lrtt_transfer_device.h"

#include <algorithm>

#include "compounds/array_ids.h"
#include "core/backend.h"
#include "lrtt/functors.h"
#include "lrtt/reinit.h"
#include "core/math_util.h"
#include "array/cell_functors.h"

namespace RPU {
namespace {

constexpr const char *kNoAdapter =
    "lrtt.rank is 0, so this tile has no adapter; set rank to 1 or more";

}  // namespace

LRTTTransferDevice::LRTTTransferDevice(const Context &context, const LRTTParams &parameters,
                                       const UpdateParameters &update, const IOParameters &forward,
                                       const IOParameters &backward, int64_t dSize, int64_t xSize,
                                       uint64_t seed, uint32_t tileId)
    : settings_(parameters, update, dSize, xSize),
      visible_(context, parameters.visible, dSize, xSize, makeKey(seed, tileId, ArrayId::Visible)),
      visibleIo_(context, forward, backward, dSize, xSize,
                 makeKey(seed, tileId, ArrayId::VisibleIo)),
      visibleUpdater_(update, makeKey(seed, tileId, ArrayId::VisibleUpdate)) {
  if (settings_.rank == 0) return;
  adapter_ = std::make_unique<LRTTAdapter>(context, settings_, forward, backward, seed, tileId);
  transfers_ = std::make_unique<LRTTTransfer>(context, settings_, forward, backward, seed, tileId);
}

void LRTTTransferDevice::requireAdapter() const {
  RPU_CHECK(ConfigError, adapter_ != nullptr, kNoAdapter);
}

const LRTTAdapter &LRTTTransferDevice::adapter() const {
  requireAdapter();
  return *adapter_;
}

LRTTAdapter &LRTTTransferDevice::adapter() {
  requireAdapter();
  return *adapter_;
}

const LRTTTransfer &LRTTTransferDevice::transfers() const {
  requireAdapter();
  return *transfers_;
}

void LRTTTransferDevice::read(const Context &context, Pass pass, MatrixView<const float> in,
                              MatrixView<float> out, uint64_t firstSample) {
  if (injected() && settings_.params.inject_io == InjectIo::Shared) {
    readShared(context, pass, in, out, firstSample);
    return;
  }
  const bool forwards = pass == Pass::Forward;
  AnalogRead &io = forwards ? visibleIo_.forward() : visibleIo_.backward();
  const MatrixView<const float> weights =
      forwards ? visible_.weights() : visible_.weights().transposed();
  if (injected() && io.joinable(context) && adapter_->joins(context, pass)) {
    adapter_->readWith(context, pass, io, weights, in, out, firstSample);
    return;
  }
  io.run(context, weights, in, out, firstSample);
  if (injected()) adapter_->addProduct(context, pass, in, {}, {}, out, firstSample);
}

void LRTTTransferDevice::readShared(const Context &context, Pass pass, MatrixView<const float> in,
                                    MatrixView<float> out, uint64_t firstSample) {
  const bool forwards = pass == Pass::Forward;
  const MatrixView<const float> weights =
      forwards ? visible_.weights() : visible_.weights().transposed();
  const AnalogRead::Product product = [&](MatrixView<const float> driven, MatrixView<float> sums) {
    gemm(context, 1.0f, driven, weights.transposed(), 0.0f, sums);
    adapter_->addExactProduct(context, pass, driven, sums);
  };
  AnalogRead &io = forwards ? visibleIo_.forward() : visibleIo_.backward();
  io.run(context, weights, product, in, out, firstSample);
}

void LRTTTransferDevice::forward(const Context &context, MatrixView<const float> x,
                                 MatrixView<float> y, const Counters &c) {
  read(context, Pass::Forward, x, y, c.forwardSamples);
}

void LRTTTransferDevice::backward(const Context &context, MatrixView<const float> d,
                                  MatrixView<float> dx, const Counters &c) {
  read(context, Pass::Backward, d, dx, c.backwardSamples);
}

void LRTTTransferDevice::update(const Context &context, MatrixView<const float> x,
                                MatrixView<const float> d, float lr, const Counters &c) {
  updateGated(context, x, d, {}, lr, c);
}

void LRTTTransferDevice::updateGated(const Context &context, MatrixView<const float> x,
                                     MatrixView<const float> d, MatrixView<const float> gate,
                                     float lr, const Counters &c) {
  if (!adapter_) {
    RPU_CHECK(ConfigError, !gate.data, kNoAdapter);
    visibleUpdater_.update(context, visible_, x, d, lr, c.updateSamples);
    return;
  }
  const bool inSamples = settings_.params.transfer_every > 0 && !settings_.params.units_in_mbatch;
  for (int64_t start = 0; start < x.rows;) {
    const int64_t left = x.rows - start;
    const int64_t count =
        inSamples ? std::min(left, settings_.params.transfer_every - sinceTransfer_) : left;
    adapter_->update(context, x.block(start, 0, count, x.cols), d.block(start, 0, count, d.cols),
                     gate.data ? gate.block(start, 0, count, gate.cols) : gate, lr,
                     c.updateSamples + static_cast<uint64_t>(start));
    start += count;
    if (inSamples) countTowardsTransfer(context, count);
  }
}

bool LRTTTransferDevice::checksUpdate(const Context &context, int64_t samples) const {
  if (context.onCpu()) return false;
  if (!adapter_) return visibleUpdater_.sendsTrains();
  // A batch that is cut at a transfer is looked at piece by piece.
  const bool inSamples = settings_.params.transfer_every > 0 && !settings_.params.units_in_mbatch;
  const bool isWhole = !inSamples || samples <= settings_.params.transfer_every - sinceTransfer_;
  return isWhole && adapter_->checksUpdate(context);
}

void LRTTTransferDevice::postUpdate(const Context &context, float, const Counters &c) {
  visible_.relax(context, c.miniBatches);
  if (!adapter_) return;
  adapter_->endMiniBatch(context, c.miniBatches);
  if (settings_.params.transfer_every > 0 && settings_.params.units_in_mbatch)
    countTowardsTransfer(context, 1);
}

void LRTTTransferDevice::countTowardsTransfer(const Context &context, int64_t units) {
  sinceTransfer_ += units;
  if (sinceTransfer_ < settings_.params.transfer_every) return;
  sinceTransfer_ = 0;
  transfer(context);
}

void LRTTTransferDevice::transfer(const Context &context) {
  if (!adapter_) return;
  Context own = context;  // a transfer sends what the arrays hold, whatever the last inputs were
  own.fault = nullptr;
  transfers_->run(own, visible_, *adapter_);
  adapter_->reinit(own);
}

void LRTTTransferDevice::requireGates() const {
  requireAdapter();
  RPU_CHECK(ConfigError,
            settings_.params.forward_inject && settings_.params.inject_io == InjectIo::PerArray,
            "a gate was given, but lrtt.forward_inject is ",
            settings_.params.forward_inject ? "True" : "False", " and lrtt.inject_io is '",
            EnumNames<InjectIo>::kNames[static_cast<int>(settings_.params.inject_io)],
            "'; a gate acts on B x as it was read: set them to True and 'per_array'");
}

void LRTTTransferDevice::forwardGated(const Context &context, MatrixView<const float> x,
                                      MatrixView<const float> gate, MatrixView<float> y,
                                      MatrixView<float> read, const Counters &c) {
  requireGates();
  visibleIo_.forward().run(context, visible_.weights(), x, y, c.forwardSamples);
  adapter_->addProduct(context, Pass::Forward, x, gate, read, y, c.forwardSamples);
}

void LRTTTransferDevice::backwardGated(const Context &context, MatrixView<const float> d,
                                       MatrixView<const float> gate, MatrixView<const float> read,
                                       MatrixView<float> dx, MatrixView<float> gateGradient,
                                       const Counters &c) {
  requireGates();
  backwardRead_.reserve(context, d.rows * settings_.rank);
  const auto e = rowMajor(backwardRead_.data(), d.rows, settings_.rank);
  visibleIo_.backward().run(context, visible_.weights().transposed(), d, dx, c.backwardSamples);
  adapter_->addProduct(context, Pass::Backward, d, gate, e, dx, c.backwardSamples);
  forEach(context, e.size(), GateGradient{settings_.alpha, read, e.data, gateGradient});
}

void LRTTTransferDevice::getWeights(const Context &context, MatrixView<float> out) const {
  forEach(context, out.size(), ElementCopier{visible_.weights(), out});
  if (!injected()) return;
  gemm(context, settings_.alpha, adapter_->dFactor(), adapter_->xFactor().transposed(), 1.0f, out);
}

void LRTTTransferDevice::setVisible(const Context &context, MatrixView<const float> weights,
                                    const Counters &c) {
  // Behind the events of digital transfers, which the tile's counter knows nothing of.
  visible_.setWeights(context, weights, 2 * kWriteEvents - 1 - c.events);
}

void LRTTTransferDevice::setWeights(const Context &context, MatrixView<const float> weights,
                                    const Counters &c) {
  setVisible(context, weights, c);
  if (adapter_) adapter_->clear(context);
}

Value::Map LRTTTransferDevice::statistics(const Context &context) const {
  uint64_t pulses = visible_.pulseCount(context);
  uint64_t bytes = visible_.memoryBytes();
  const Value saturated(visible_.saturatedCells(context));
  Value::Map map{{"saturated_cells", saturated}};
  if (adapter_) {
    const uint64_t pulsesA = adapter_->a().pulseCount(context);
    const uint64_t pulsesB = adapter_->b().pulseCount(context);
    map["pulses_visible"] = Value(pulses);
    map["pulses_a"] = Value(pulsesA);
    map["pulses_b"] = Value(pulsesB);
    map["transfers"] = Value(transfers_->count());
    Value::Map transfer = transfers_->total(context).describe();
    Value::Map latest = transfers_->latest(context).describe();
    transfer["saturated_cells"] = latest["saturated_cells"] = saturated;
    map["transfer"] = Value(std::move(transfer));
    map["last_transfer"] = Value(std::move(latest));
    pulses += pulsesA + pulsesB;
    bytes += adapter_->memoryBytes();
  }
  map["pulses"] = Value(pulses);
  map["memory_bytes"] = Value(bytes);
  return map;
}

void LRTTTransferDevice::saveTo(const Context &context, State &state,
                                const std::string &prefix) const {
  visible_.saveTo(context, state, prefix + "visible/");
  visibleIo_.forward().saveTo(context, state, prefix + "visible/forward/");
  visibleIo_.backward().saveTo(context, state, prefix + "visible/backward/");
  if (!adapter_) return;
  adapter_->saveTo(context, state, prefix);
  transfers_->saveTo(context, state, prefix + "transfer/");
  state.values[prefix + "since_transfer"] = Value(sinceTransfer_);
}

void LRTTTransferDevice::loadFrom(const Context &context, const State &state,
                                  const std::string &prefix) {
  const auto sinceTransfer =
      adapter_ ? static_cast<int64_t>(state.counter(prefix + "since_transfer")) : 0;
  RPU_CHECK(StateError, sinceTransfer == 0 || sinceTransfer < settings_.params.transfer_every,
            "since_transfer is ", sinceTransfer, " in the state, but a transfer is due every ",
            settings_.params.transfer_every, "; the state is damaged");
  visible_.loadFrom(context, state, prefix + "visible/");
  visibleIo_.forward().loadFrom(context, state, prefix + "visible/forward/");
  visibleIo_.backward().loadFrom(context, state, prefix + "visible/backward/");
  if (!adapter_) return;
  adapter_->loadFrom(context, state, prefix);
  transfers_->loadFrom(context, state, prefix + "transfer/");
  sinceTransfer_ = sinceTransfer;
}

}  // namespace RPU
