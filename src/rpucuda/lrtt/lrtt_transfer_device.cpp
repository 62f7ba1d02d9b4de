#include "lrtt/lrtt_transfer_device.h"

#include "array/events.h"
#include "core/backend.h"
#include "linalg/math_util.h"
#include "lrtt/functors.h"
#include "lrtt/reinit.h"

namespace pulsora {
namespace {

constexpr const char *kNoAdapter =
    "lrtt.rank is 0, so this tile has no adapter; set rank to 1 or more";

}  // namespace

CompoundFacts LRTTParams::facts() const {
  return {
      "visible", /*pulsesWritten=*/false, projection == Projection::Reuse,
      transfer_every.automatic || (reinitScheme(reinit).worksOnHost && transfer_every.value > 0),
      adapter_span == AdapterSpan::Layer};
}

std::vector<CompoundVariant> LRTTParams::variants() {
  const Value noisyCells(
      Value::Map{{"model", Value("SoftBounds")}, {"write_noise_std", Value(3.0)}});
  return {{"lrtt_write_verify",
           {{"transfer_mode", "write_verify"}, {"transfer_every", 1}, {"visible", noisyCells}}},
          {"lrtt_verify_by_reads",
           {{"verify_read", "analog"}, {"transfer_every", 1}, {"visible", noisyCells}}},
          {"lrtt_transfers_by_themselves", {{"transfer_every", "auto"}}},
          {"lrtt_limited_steps", {{"ab_step_limit", 0.5}}}};
}

std::unique_ptr<AnalogDevice> LRTTParams::make(const CompoundSite &site) const {
  return retain(site, std::make_unique<LRTTTransferDevice>(*this, site));
}

LRTTTransferDevice::LRTTTransferDevice(const LRTTParams &p, const CompoundSite &site)
    : settings_(p, site.periphery.update, site.dSize, site.xSize),
      visible_(site.context, p.visible, site.dSize, site.xSize, site.periphery, site.keys,
               LRTTAdapter::kSlotVisible, settings_.readLimits(), settings_.touchOfVisible()),
      schedule_(p.transfer_every.automatic ? 0 : p.transfer_every.value,
                p.units_in_mbatch ? TransferSchedule::Unit::MiniBatches
                                  : TransferSchedule::Unit::Samples) {
  if (settings_.rank == 0) return;
  adapter_ = std::make_unique<LRTTAdapter>(site.context, settings_, site.periphery, site.keys);
  transfers_ = std::make_unique<LRTTTransfer>(site.context, settings_, site.periphery, site.keys);
  if (p.transfer_every.automatic)
    filling_ = std::make_unique<AdapterFilling>(site.context, settings_, *adapter_);
}

std::vector<NamedArray> LRTTTransferDevice::arrays() {
  if (!adapter_) return {{"visible", &visible_}};
  return {{"visible", &visible_}, {"fast_a", &adapter_->arrayA()}, {"fast_b", &adapter_->arrayB()}};
}

void LRTTTransferDevice::boundReads(const Context &context) {
  visible_.boundReads(context);
  if (!adapter_) return;
  const AdapterBounds bounds = adapter_->boundReads(context);
  transfers_->setWeightBounds(bounds.a, bounds.b);
}

std::string LRTTTransferDevice::whyNoIntegers() const {
  const bool isShared = injected() && settings_.params.inject_io == InjectIo::Shared;
  return isShared ? "inject_io is 'shared'" : "";
}

void LRTTTransferDevice::requireAdapter() const {
  PULSORA_CHECK(ConfigError, adapter_ != nullptr, kNoAdapter);
}

const LRTTAdapter &LRTTTransferDevice::factors() const {
  requireAdapter();
  return *adapter_;
}

LRTTAdapter &LRTTTransferDevice::factors() {
  requireAdapter();
  return *adapter_;
}

const LRTTTransfer &LRTTTransferDevice::transfers() const {
  requireAdapter();
  return *transfers_;
}

void LRTTTransferDevice::read(const Context &context, Pass pass, MatrixView<const float> in,
                              MatrixView<float> out, uint64_t firstSample) {
  if (!injected()) {
    visible_.run(context, pass, in, out, firstSample);
  } else if (settings_.params.inject_io == InjectIo::Shared) {
    readShared(context, pass, in, out, firstSample);
  } else {
    adapter_->readWith(context, pass, visibleRead(pass), in, {}, {}, out, firstSample);
  }
}

void LRTTTransferDevice::readShared(const Context &context, Pass pass, MatrixView<const float> in,
                                    MatrixView<float> out, uint64_t firstSample) {
  const ArrayRead visible = visibleRead(pass);
  adapter_->reserveInner(context, in.rows);
  const AnalogRead::Product product = [&](MatrixView<const float> driven, MatrixView<float> sums) {
    gemm(context, 1.0f, driven, visible.weights.transposed(), 0.0f, sums);
    adapter_->addExactProduct(context, pass, driven, sums);
  };
  visible.read.run(context, visible.weights, product, in, out, firstSample);
}

void LRTTTransferDevice::forward(const Context &context, MatrixView<const float> x,
                                 MatrixView<float> y, const Counters &c) {
  read(context, Pass::Forward, x, y, c.forwardSamples);
}

void LRTTTransferDevice::backward(const Context &context, MatrixView<const float> d,
                                  MatrixView<float> dx, const Counters &c) {
  read(context, Pass::Backward, d, dx, c.backwardSamples);
}

bool LRTTTransferDevice::updateMayBeCut(const Context &context) const {
  const Projection projection = settings_.params.projection;
  if (projection == Projection::Reuse || !AnalogDevice::updateMayBeCut(context)) return false;
  if (!adapter_) return true;
  const bool inSamples = schedule_.counts(TransferSchedule::Unit::Samples);
  // On a GPU the order of a projection's sums follows from the samples between two transfers.
  const bool keepsOrder = context.onCpu() || context.gpuProducts == GpuProducts::Reproducible ||
                          (projection != Projection::Exact && !inSamples);
  return keepsOrder && (!inSamples || transfers_->count() < transfers_->most() / 2);
}

void LRTTTransferDevice::requireRoom(int64_t transfers, int64_t ends) const {
  const auto due = static_cast<uint64_t>(transfers);
  pulsora::requireRoom(transfers_->count(), due, transfers_->most(), "transfers");
  const uint64_t writes = settings_.keepsRest() ? 3 : 2;  // of A and B in a transfer
  adapter_->requireRoom(writes * due, due, due + static_cast<uint64_t>(ends));
}

void LRTTTransferDevice::update(const Context &context, MatrixView<const float> x,
                                MatrixView<const float> d, float lr, const Counters &c) {
  updateGated(context, x, d, {}, lr, c);
}

void LRTTTransferDevice::updateGated(const Context &context, MatrixView<const float> x,
                                     MatrixView<const float> d, MatrixView<const float> gate,
                                     float lr, const Counters &c) {
  if (!adapter_) {
    PULSORA_CHECK(ConfigError, !gate.data, kNoAdapter);
    visible_.update(context, x, d, lr, c.updateSamples);
    return;
  }
  requireRoom(dueWithin(x.rows), 1);
  reserveUpdate(context, x.rows, lr);
  for (int64_t start = 0; start < x.rows;) {
    const int64_t count = schedule_.next(x.rows - start);
    adapter_->update(context, x.block(start, 0, count, x.cols), d.block(start, 0, count, d.cols),
                     gate.data ? gate.block(start, 0, count, gate.cols) : gate, lr,
                     c.updateSamples + static_cast<uint64_t>(start));
    start += count;
    if (schedule_.passed(TransferSchedule::Unit::Samples, count)) {
      adapter_->flush(context);
      transfer(context);
    }
  }
}

int64_t LRTTTransferDevice::dueWithin(int64_t samples) const {
  return schedule_.dueWithin(TransferSchedule::Unit::Samples, samples) + dueAtEnd();
}

int64_t LRTTTransferDevice::dueAtEnd() const {
  if (filling_) return filling_->looksNext() ? 1 : 0;
  return schedule_.dueWithin(TransferSchedule::Unit::MiniBatches, 1);
}

void LRTTTransferDevice::prepareUpdate(const Context &context, int64_t samples, int64_t longest,
                                       float lr) {
  if (adapter_) {
    const int64_t due = dueWithin(samples);
    requireRoom(due, 1);
    adapter_->requireReady(samples);
    if (due > 0) reserveTransfer(context);
  }
  reserveUpdate(context, longest, lr);
}

void LRTTTransferDevice::reserveUpdate(const Context &context, int64_t samples, float lr) {
  if (!adapter_) {
    visible_.updater().reserve(context, visible_.cells(), samples, lr);
    return;
  }
  adapter_->reserveUpdate(context, schedule_.longest(samples), lr);
  if (schedule_.due(TransferSchedule::Unit::Samples, samples)) reserveTransfer(context);
}

bool LRTTTransferDevice::updateLooksForFaults(const Context &context, int64_t samples) const {
  if (context.onCpu()) return false;
  if (!adapter_) return visible_.updater().sendsTrains();
  // In a batch cut at a transfer, later pieces would be checked after earlier ones changed A and B.
  return schedule_.next(samples) == samples && adapter_->updatesInFewLaunches(context);
}

void LRTTTransferDevice::postUpdate(const Context &context, float, const Counters &c) {
  if (adapter_) {
    const int64_t due = dueAtEnd();
    requireRoom(due, 1);
    if (due > 0) reserveTransfer(context);
    adapter_->reserveFlush(context);
    adapter_->reserveRelax(context);
  }
  visible_.cells().reserveRelax(context);
  visible_.cells().relax(context, c.miniBatches);
  if (!adapter_) return;
  adapter_->endMiniBatch(context, c.miniBatches);
  const bool due = filling_ ? filling_->passed(context, *adapter_, c.miniBatches + 1)
                            : schedule_.passed(TransferSchedule::Unit::MiniBatches, 1);
  if (due) transfer(context);
}

void LRTTTransferDevice::reserveTransfer(const Context &context) {
  transfers_->reserve(context, visible_.cells());
  adapter_->reserveReinit(context);
}

void LRTTTransferDevice::transfer(const Context &context, bool keepsRest,
                                  MatrixView<const float> weights) {
  if (!adapter_) return;
  requireRoom(1, 0);
  reserveTransfer(context);
  Context own = context;  // a transfer happens even if the last inputs were not finite
  own.nonfiniteFlag = nullptr;
  adapter_->meetBounds(own);
  transfers_->run(own, visible_.cells(), *adapter_, weights);
  adapter_->reinit(own);
  if (keepsRest) keepRest(own);
  if (filling_) filling_->restart(own, *adapter_, true);
}

// A takes what the transfer left missing. Then the cells that can be written make up for what A B
// adds to them where A holds others.
void LRTTTransferDevice::keepRest(const Context &context) {
  const float tolerance = settings_.heldFrom();
  adapter_->keepRest(context, transfers_->missing(visible_.cells()), tolerance);
  if (tolerance == 0.0f) return;
  const RestKeeper &rest = adapter_->rest();
  if (context.onCpu() && *rest.anyHeld() == 0) return;
  transfers_->revise(context, visible_.cells(), *adapter_);
}

void LRTTTransferDevice::merge(const Context &context, MatrixView<const float> weights) {
  PULSORA_CHECK(ConfigError,
                !weights.data || settings_.params.transfer_mode == TransferMode::WriteVerify,
                "weights were given to a merge, but lrtt.transfer_mode writes no cell to a target; "
                "choose 'write_verify', or merge without weights");
  adapter_->requireRoom(1);
  transfer(context, false, weights);
  if (settings_.params.reinit != Reinit::None) return;
  adapter_->clear(context);
  restartFilling(context);
}

void LRTTTransferDevice::requireGates() const {
  requireAdapter();
  PULSORA_CHECK(ConfigError,
                settings_.params.forward_inject && settings_.params.inject_io == InjectIo::PerArray,
                "a gate was given, but lrtt.forward_inject is ",
                settings_.params.forward_inject ? "True" : "False", " and lrtt.inject_io is '",
                nameOf(settings_.params.inject_io),
                "'; a gate acts on B x as it was read: set them to True and 'per_array'");
}

void LRTTTransferDevice::forwardGated(const Context &context, MatrixView<const float> x,
                                      MatrixView<const float> gate, MatrixView<float> y,
                                      MatrixView<float> read, const Counters &c) {
  requireGates();
  adapter_->readWith(context, Pass::Forward, visibleRead(Pass::Forward), x, gate, read, y,
                     c.forwardSamples);
}

void LRTTTransferDevice::backwardGated(const Context &context, MatrixView<const float> d,
                                       MatrixView<const float> gate, MatrixView<const float> read,
                                       MatrixView<float> dx, MatrixView<float> gateGradient,
                                       const Counters &c) {
  requireGates();
  backwardRead_.reserve(context, d.rows * settings_.rank);
  const auto e = rowMajor(backwardRead_.data(), d.rows, settings_.rank);
  adapter_->readWith(context, Pass::Backward, visibleRead(Pass::Backward), d, gate, e, dx,
                     c.backwardSamples);
  forEach(context, e.size(), GateGradient{settings_.alpha, read, e.data, gateGradient});
}

void LRTTTransferDevice::setReinitVectors(const Context &context, MatrixView<const float> vectors) {
  adapter_->requireRoom(1);
  adapter_->setReinitVectors(context, vectors);
  restartFilling(context);
}

void LRTTTransferDevice::getWeights(const Context &context, MatrixView<float> out) const {
  copy(context, visible_.weights(), out);
  if (!injected()) return;
  gemm(context, settings_.alpha, adapter_->dFactor(), adapter_->xFactor().transposed(), 1.0f, out);
}

void LRTTTransferDevice::writeVisible(const Context &context, MatrixView<const float> weights,
                                      const Counters &c) {
  visible_.cells().setWeights(context, weights, tileWrite(c.events));
}

void LRTTTransferDevice::setWeights(const Context &context, MatrixView<const float> weights,
                                    const Counters &c) {
  if (adapter_) adapter_->requireRoom(1);
  writeVisible(context, weights, c);
  if (!adapter_) return;
  adapter_->clear(context);
  restartFilling(context);
}

void LRTTTransferDevice::writeArray(const Context &context, const std::string &name,
                                    MatrixView<const float> weights, const Counters &c) {
  Crossbar &written = array(name);
  if (&written == &visible_) {
    writeVisible(context, weights, c);
    return;
  }
  adapter_->requireRoom(1);
  adapter_->setWeights(context, written, weights);
  restartFilling(context);
}

void LRTTTransferDevice::resetColumns(const Context &context, const std::string &name,
                                      int64_t firstCol, int64_t count, float probability,
                                      const Counters &c) {
  AnalogDevice::resetColumns(context, name, firstCol, count, probability, c);
  if (adapter_) adapter_->arraysReplaced();
}

void LRTTTransferDevice::setAges(const Context &context, const std::vector<Age> &ages) {
  AnalogDevice::setAges(context, ages);
  if (adapter_) adapter_->arraysReplaced();
}

Value::Map LRTTTransferDevice::statistics(const Context &context) const {
  uint64_t pulses = visible().pulseCount(context);
  const Value saturated(visible().saturatedCells(context));
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
    if (filling_) {
      map["filling"] = Value(filling_->describe(context, *adapter_));
      map["transfers_due_at"] = Value(filling_->times());
    }
    pulses += pulsesA + pulsesB;
  }
  map["pulses"] = Value(pulses);
  map["memory_bytes"] = Value(static_cast<uint64_t>(memoryBytes()));
  return map;
}

void LRTTTransferDevice::saveTo(const Context &context, State &state,
                                const std::string &prefix) const {
  visible_.saveTo(context, state, prefix + "visible/");
  if (!adapter_) return;
  adapter_->saveTo(context, state, prefix);
  transfers_->saveTo(context, state, prefix + "transfer/");
  schedule_.saveTo(state, prefix + "since_transfer");
  if (filling_) filling_->saveTo(state, prefix + "filling/");
}

void LRTTTransferDevice::loadFrom(const Context &context, const State &state,
                                  const std::string &prefix) {
  if (adapter_) schedule_.loadFrom(state, prefix + "since_transfer");
  if (filling_) filling_->loadFrom(state, prefix + "filling/");
  visible_.loadFrom(context, state, prefix + "visible/");
  if (!adapter_) return;
  adapter_->loadFrom(context, state, prefix);
  transfers_->loadFrom(context, state, prefix + "transfer/");
}

}  // namespace pulsora
