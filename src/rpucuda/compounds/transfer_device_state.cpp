#include "array/cell_functors.h"
#include "array/events.h"
#include "compounds/transfer_device.h"
#include "core/backend.h"
#include "core/check.h"
#include "linalg/math_util.h"
#include "storage/state_values.h"

// A chain of arrays told, written and saved: explain(), statistics, weights, states.

namespace pulsora {
namespace {

/// The inputs of one side with the square roots of the samples' learning rates as factors.
MatrixView<const float> withRates(const Context &context, MatrixView<const float> in,
                                  const float *rates, Buffer<float> &storage) {
  storage.reserve(context, in.size());
  forEach(context, in.size(), ChoppedInput{in, {}, nullptr, false, rates, 0, 1, storage.data()});
  return rowMajor<const float>(storage.data(), in.rows, in.cols);
}

}  // namespace

Value::Map TransferDevice::explain(const Context &context, MatrixView<const float> x,
                                   MatrixView<const float> d, float lr) const {
  const Crossbar &fast = *chain_.front();
  float rate = fastRate(lr);
  Buffer<float> xScaled, dScaled;
  if (params_.auto_scale) {
    Buffer<float> maxima(context, 2 * x.rows), rates(context, x.rows);
    Buffer<float> running(context, AutoRates::kSize);
    copy(context, rowMajor(maxima_.data(), 1, AutoRates::kSize),
         rowMajor(running.data(), 1, AutoRates::kSize));
    findRates(context, x, d, lr, {maxima.data(), running.data(), rates.data()});
    x = withRates(context, x, rates.data(), xScaled);
    d = withRates(context, d, rates.data(), dScaled);
    rate = 1.0f;
  }
  Value::Map map = explainPulses(context, fast.updater().parameters(), fast.cells().granularity(),
                                 x, d, rate, params_.fast_lr > 0.0f ? "fast_lr" : "lr");
  const TransferSchedule &schedule = transfers_.front().settings().schedule;
  map["fast_lr"] = Value(fastRate(lr));
  map["transfer_lr"] = Value(transferRate(0, lr));
  map["transfer_every"] = Value(schedule.period());
  map["transfers_count"] =
      Value(schedule.counts(TransferSchedule::Unit::Samples) ? "samples" : "mini-batches");
  return map;
}

size_t TransferDevice::memoryBytes() const {
  size_t bytes = AnalogDevice::memoryBytes() + weight_.memoryBytes();
  for (const LineTransfer &each : transfers_) bytes += each.memoryBytes();
  return bytes;
}

Value::Map TransferDevice::statistics(const Context &context) const {
  Value::Map map = AnalogDevice::statistics(context);
  Value::List reads;
  Value::List clipped;
  Value::List buffered;
  for (const LineTransfer &each : transfers_) {
    reads.emplace_back(each.reads());
    clipped.emplace_back(each.clipped(context));
    buffered.emplace_back(static_cast<double>(each.largestBuffered(context)));
  }
  for (const NamedArray &each : arraysOf())
    map["pulses_" + each.name] = Value(each.array->cells().pulseCount(context));
  map["lines_read"] = Value(std::move(reads));
  map["steps_clipped"] = Value(std::move(clipped));
  map["largest_buffered"] = Value(std::move(buffered));
  return map;
}

void TransferDevice::countHardware(const Counters &c, HardwareCounts &counts) const {
  uint64_t together = 0;  // arrays that a read of W sees
  for (size_t k = 0; k < chain_.size(); ++k)
    together += params_.weightOf(static_cast<int64_t>(k)) != 0.0f ? 1 : 0;
  for (const NamedArray &each : arraysOf())
    counts.addArray(each.name, each.array->cells(),
                    each.array->cells().slotCount(counts.context()));
  counts.addReads("visible", "forward", visible().read(Pass::Forward), c.forwardSamples, together);
  counts.addReads("visible", "backward", visible().read(Pass::Backward), c.backwardSamples,
                  together);
  for (size_t k = 0; k < transfers_.size(); ++k) {
    const LineTransfer &each = transfers_[k];
    const bool isLast = k + 1 == transfers_.size();
    counts.addReads(fastName(k), "transfer", each.reader(), each.reads());
    counts.addLines(isLast ? "visible" : fastName(k + 1), each.reads());
    counts.addTransfers(each.reads() / static_cast<uint64_t>(each.settings().together));
    if (each.rule().buffer == TransferBuffer::None) continue;
    const uint64_t elements = each.reads() * static_cast<uint64_t>(each.rule().others);
    counts.addDigital(elements, 8 * elements);
  }
}

void TransferDevice::setWeights(const Context &context, MatrixView<const float> weights,
                                const Counters &c) {
  // All memory is taken before the first write.
  const Buffer<float> zeros = Buffer<float>::zeros(context, weights.size());
  const auto none = rowMajor<const float>(zeros.data(), weights.rows, weights.cols);
  const float factor = params_.weightOf(params_.arrays() - 1);
  Buffer<float> scaled;
  if (factor != 1.0f) {
    scaled.reserve(context, weights.size());
    forEach(context, weights.size(), ScaledCopier{weights, 1.0f / factor, scaled.data()});
    weights = rowMajor<const float>(scaled.data(), weights.rows, weights.cols);
  }
  for (size_t k = 0; k + 1 < chain_.size(); ++k)
    chain_[k]->cells().setWeights(context, none, c.events);
  visible().cells().setWeights(context, weights, c.events);
  for (LineTransfer &each : transfers_) each.restart(context);
  followSigns();
}

void TransferDevice::saveTo(const Context &context, State &state, const std::string &prefix) const {
  AnalogDevice::saveTo(context, state, prefix);
  for (size_t k = 0; k < transfers_.size(); ++k)
    transfers_[k].saveTo(context, state, prefix + message("transfer_", k, "/"));
  if (!params_.auto_scale) return;
  state.put(context, prefix + "running_maxima", Tensor::Type::F32, {AutoRates::kSize}, maxima_);
  state.values[prefix + "batch_samples"] = Value(batchSamples_);
  state.values[prefix + "last_batch"] = Value(lastBatch_);
}

void TransferDevice::loadFrom(const Context &context, const State &state,
                              const std::string &prefix) {
  AnalogDevice::loadFrom(context, state, prefix);
  for (size_t k = 0; k < transfers_.size(); ++k)
    transfers_[k].loadFrom(context, state, prefix + message("transfer_", k, "/"));
  followSigns();
  if (!params_.auto_scale) return;
  batchSamples_ = static_cast<int64_t>(state.counter(prefix + "batch_samples", kMostCounted));
  lastBatch_ = static_cast<int64_t>(state.counter(prefix + "last_batch", kMostCounted));
  state.take(context, prefix + "running_maxima", Tensor::Type::F32, {AutoRates::kSize}, maxima_);
  requireValues(state, prefix + "running_maxima", "a number of 0 or more",
                [](float value, int64_t i) { return i == AutoRates::kLatest || value >= 0.0f; });
}

}  // namespace pulsora
