#include "compounds/one_sided.h"

#include <algorithm>

#include "array/events.h"
#include "core/backend.h"
#include "linalg/math_util.h"

namespace pulsora {

using Unit = TransferSchedule::Unit;

IOParameters OneSidedParams::exactRead() {
  IOParameters exact;
  exact.is_perfect = true;
  return exact;
}

UpdateParameters OneSidedParams::wholeDifference() {
  UpdateParameters all;
  all.pulse_type = PulseType::DeterministicImplicit;
  all.desired_bl = 65536;
  all.update_management = all.update_bl_management = false;
  return all;
}

std::unique_ptr<AnalogDevice> OneSidedParams::make(const CompoundSite &site) const {
  return retain(site, std::make_unique<OneSidedDevice>(*this, site));
}

std::vector<CompoundVariant> OneSidedParams::variants() {
  const Value::Map often{{"refresh_upper_thres", 0.02}, {"refresh_lower_thres", 0.01}};
  Value::Map batches = often;
  batches["read_io"] = "per_array";
  Value::Map samples = often;
  samples["units_in_mbatch"] = false;
  samples["refresh_every"] = 4;
  samples["refresh_forward"] = Value::Map{{"out_noise", 0.01}};
  samples["refresh_update"] = Value::Map{{"pulse_type", "stochastic_compressed"}};
  return {{"one_sided_refreshed", batches}, {"one_sided_by_sample", samples}};
}

OneSidedDevice::OneSidedDevice(const OneSidedParams &params, const CompoundSite &site)
    : ArrayGroup(site, {{"plus", params.device, 1.0f}, {"minus", params.device, -1.0f}},
                 params.read_io),
      params_(params),
      schedule_(params.refresh_every, params.units_in_mbatch ? Unit::MiniBatches : Unit::Samples),
      readPlus_(site.context, params.refresh_forward, Pass::Forward, site.xSize, site.dSize,
                site.keys.ofRead(0, Role::Transfer)),
      readMinus_(site.context, params.refresh_forward, Pass::Forward, site.xSize, site.dSize,
                 site.keys.ofRead(1, Role::Transfer)),
      writeKey_(site.keys.of(1, Role::Update)) {
  const float wMax = params.device.common().w_max;
  PULSORA_CHECK(ConfigError, wMax > 0.0f, "device.w_max is ", wMax,
                ", but one-sided cells are pulsed up from 0; it must be > 0");
}

uint64_t OneSidedDevice::mostRefreshes() const {
  return kWritePulseSamples / static_cast<uint64_t>(xSize());
}

void OneSidedDevice::requireRoom(int64_t refreshes) const {
  pulsora::requireRoom(refreshes_, static_cast<uint64_t>(refreshes), mostRefreshes(), "refreshes");
}

void OneSidedDevice::boundReads(const Context &context) {
  ArrayGroup::boundReads(context);
  if (!readPlus_.asksForIntegers()) return;
  readPlus_.setWeightBound(at(0).weightBound(context));
  readMinus_.setWeightBound(at(1).weightBound(context));
}

void OneSidedDevice::update(const Context &context, MatrixView<const float> x,
                            MatrixView<const float> d, float lr, const Counters &c) {
  if (x.rows == 0) return;
  requireRoom(schedule_.dueWithin(Unit::Samples, x.rows));
  reserveUpdate(context, x.rows, lr);
  for (int64_t start = 0; start < x.rows;) {
    const int64_t count = schedule_.next(x.rows - start);
    at(0).updater().makeWords(
        context, plus().granularity(), x.block(start, 0, count, x.cols),
        d.block(start, 0, count, d.cols), lr,
        SampleRange{c.updateSamples + static_cast<uint64_t>(start), count, nullptr},
        plus().slotCounter());
    PulseWords up = at(0).updater().words();
    PulseWords down = up;
    up.way = PulseWay::Up;
    down.way = PulseWay::DownAsUp;
    const ArrayPulses both[] = {{&plus(), &up}, {&minus(), &down}};
    PulsedDevice::applyPulsesToEach(context, both, 2);
    start += count;
    if (schedule_.passed(Unit::Samples, count)) refresh(context);
  }
}

void OneSidedDevice::reserveUpdate(const Context &context, int64_t samples, float lr) {
  at(0).updater().reserve(context, plus(), samples, lr);
  if (schedule_.period() > 0) reserveRefresh(context);
}

void OneSidedDevice::reserveCounts(const Context &context, int64_t visits) {
  chosen_.reserve(context, std::max(plus().size(), visits * std::max(dSize(), xSize())));
}

void OneSidedDevice::applyCounts(const Context &context, const LinePulses &pulses) {
  const int64_t others = pulses.columns ? dSize() : xSize();
  const auto counts = rowMajor<const float>(pulses.values, pulses.visits.count, others);
  reserveCounts(context, pulses.visits.count);
  LinePulses own = pulses;
  own.values = chosen_.data();
  for (const bool isPlus : {true, false}) {
    forEach(context, counts.size(), OneSign{counts, isPlus ? 1.0f : -1.0f, chosen_.data()});
    (isPlus ? plus() : minus()).applyToLines(context, own);
  }
}

void OneSidedDevice::prepareUpdate(const Context &context, int64_t samples, int64_t longest,
                                   float lr) {
  requireRoom(schedule_.dueWithin(Unit::Samples, samples) +
              schedule_.dueWithin(Unit::MiniBatches, 1));
  reserveUpdate(context, longest, lr);
}

void OneSidedDevice::postUpdate(const Context &context, float, const Counters &c) {
  const std::vector<NamedArray> all = arrays();  // takes memory, so before anything changes
  if (schedule_.due(Unit::MiniBatches, 1)) {
    requireRoom(1);
    reserveRefresh(context);
  }
  endMiniBatch(context, all, c);
}

void OneSidedDevice::endMiniBatch(const Context &context, const std::vector<NamedArray> &arrays,
                                  const Counters &c) {
  const bool due = schedule_.due(Unit::MiniBatches, 1);
  schedule_.passed(Unit::MiniBatches, 1);
  if (due) refresh(context);
  relax(context, arrays, c.miniBatches);
}

void OneSidedDevice::reserveRefresh(const Context &context) {
  readPlus_.reserve(context);
  readMinus_.reserve(context);
  negative_.reserve(context, plus().size());
  chosen_.reserve(context, plus().size());
  if (!isDigital(params_.refresh_update.pulse_type))
    writer_.reserve(context, xSize(), dSize(), true, -1.0f, plus().granularity(),
                    params_.refresh_update);
}

// Reads all pairs, resets those that saturate, and writes their differences back.
void OneSidedDevice::refresh(const Context &context) {
  const int64_t cols = xSize();
  const uint64_t firstSample = refreshes_ * static_cast<uint64_t>(cols);
  const float wMax = params_.device.common().w_max;
  forEach(context, plus().size(),
          RefreshChoice{readPlus_.run(context, plus().weights(), firstSample),
                        readMinus_.run(context, minus().weights(), firstSample),
                        params_.refresh_upper_thres * wMax, params_.refresh_lower_thres * wMax,
                        negative_.data(), chosen_.data(), context.nonfiniteFlag});
  plus().resetCells(context, chosen_.data(), ownWrite(refreshes_));
  minus().resetCells(context, chosen_.data(), ownWrite(refreshes_));
  writeBack(context);
  ++refreshes_;
}

// Adds each difference to the array that it belongs to. In pulses, a column is a sample.
void OneSidedDevice::writeBack(const Context &context) {
  const int64_t cols = xSize();
  const bool digital = isDigital(params_.refresh_update.pulse_type);
  const MatrixView<const float> negative = rowMajor<const float>(negative_.data(), cols, dSize());
  const MatrixView<const float> wanted = rowMajor<const float>(chosen_.data(), cols, dSize());
  const uint64_t firstSample = kWritePulseSamples + refreshes_ * static_cast<uint64_t>(cols);
  LineVisits columns;
  columns.lines = columns.count = cols;
  for (const bool isPlus : {true, false}) {
    forEach(context, wanted.size(), OneSign{negative, isPlus ? -1.0f : 1.0f, chosen_.data()});
    if (!digital)
      writer_.count(context, wanted, true, -1.0f, plus().granularity(), params_.refresh_update,
                    writeKey_, firstSample, chosen_.data(), plus().slotCounter());
    (isPlus ? plus() : minus())
        .applyToLines(context, {columns, true, digital, chosen_.data(), firstSample});
  }
}

void OneSidedDevice::setWeights(const Context &context, MatrixView<const float> weights,
                                const Counters &c) {
  chosen_.reserve(context, weights.size());
  const MatrixView<const float> part =
      rowMajor<const float>(chosen_.data(), weights.rows, weights.cols);
  for (const bool isPlus : {true, false}) {
    forEach(context, weights.size(), OneSign{weights, isPlus ? 1.0f : -1.0f, chosen_.data()});
    (isPlus ? plus() : minus()).setWeights(context, part, c.events);
  }
  schedule_ = TransferSchedule(params_.refresh_every,
                               params_.units_in_mbatch ? Unit::MiniBatches : Unit::Samples);
}

Value::Map OneSidedDevice::explain(const Context &context, MatrixView<const float> x,
                                   MatrixView<const float> d, float lr) const {
  return explainPulses(context, at(0).updater().parameters(), at(0).cells().granularity(), x, d,
                       lr);
}

Value::Map OneSidedDevice::statistics(const Context &context) const {
  Value::Map numbers = ArrayGroup::statistics(context);
  numbers["refreshes"] = Value(refreshes_);
  return numbers;
}

void OneSidedDevice::countHardware(const Counters &c, HardwareCounts &counts) const {
  ArrayGroup::countHardware(c, counts);
  const uint64_t lines = refreshes_ * static_cast<uint64_t>(xSize());
  counts.addReads("plus", "refresh", readPlus_.read(), lines);
  counts.addReads("minus", "refresh", readMinus_.read(), lines);
  counts.addLines("plus", lines);
  counts.addLines("minus", lines);
  counts.addTransfers(refreshes_);
}

void OneSidedDevice::saveTo(const Context &context, State &state, const std::string &prefix) const {
  ArrayGroup::saveTo(context, state, prefix);
  readPlus_.saveTo(context, state, prefix + "plus/refresh/");
  readMinus_.saveTo(context, state, prefix + "minus/refresh/");
  schedule_.saveTo(state, prefix + "since_refresh");
  state.values[prefix + "refreshes"] = Value(refreshes_);
}

void OneSidedDevice::loadFrom(const Context &context, const State &state,
                              const std::string &prefix) {
  TransferSchedule schedule = schedule_;
  schedule.loadFrom(state, prefix + "since_refresh");
  const uint64_t refreshes = state.counter(prefix + "refreshes", mostRefreshes());
  ArrayGroup::loadFrom(context, state, prefix);
  readPlus_.loadFrom(context, state, prefix + "plus/refresh/");
  readMinus_.loadFrom(context, state, prefix + "minus/refresh/");
  schedule_ = schedule;
  refreshes_ = refreshes;
}

}  // namespace pulsora
