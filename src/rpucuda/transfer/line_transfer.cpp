#include "transfer/line_transfer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "array/events.h"
#include "core/backend.h"
#include "linalg/math_util.h"
#include "numerics/abs_max.h"
#include "storage/state_values.h"
#include "transfer/line_functors.h"

namespace pulsora {
namespace {

// forEach() over the elements of [rows, cols]; on a CPU by functor.ofRows(begin, end), which
// computes once what elements share.
template <class Functor>
void forEachByRows(const Context &context, int64_t rows, int64_t cols, const Functor &functor) {
  if (!context.onCpu()) {
    forEach(context, rows * cols, functor);
    return;
  }
  const int64_t grain = 1 + kStepsPerThread / (cols + 1);
  parallelRange(context, rows, grain,
                [&](int64_t begin, int64_t end) { functor.ofRows(begin, end); });
}

// One line is driven, so that a read can have no effect of the other lines.
void requireLineRead(const IOParameters &p, const std::string &path) {
  const auto require = [&](bool holds, const char *name, const char *value) {
    PULSORA_CHECK(
        ConfigError, holds, path, ".", name, " is set, but a transfer drives one line by ",
        "1 and holds the others at 0, so that this effect has no meaning; set it to ", value);
  };
  if (p.is_perfect) return;
  require(p.noise_management == NoiseManagement::None, "noise_management", "'none'");
  require(p.bound_management == BoundManagement::None, "bound_management", "'none'");
  require(p.inp_noise == 0.0f, "inp_noise", "0");
  require(p.ir_drop == 0.0f, "ir_drop", "0");
  require(p.w_read_asymmetry_dtod == 0.0f, "w_read_asymmetry_dtod", "0");
  require(p.w_noise == 0.0f || p.w_noise_type != WeightNoiseType::PcmRead, "w_noise_type",
          "'additive_constant'");
}

}  // namespace

LineTransfer::LineTransfer(const Context &context, const LineRule &rule,
                           const LineSettings &settings, const TileKeys &keys, uint32_t from,
                           uint32_t to, const std::string &path)
    : rule_(rule),
      settings_(settings),
      selectionKey_(keys.of(from, Role::Transfer)),
      chopperKey_(keys.of(from, Role::Start)),
      writeKey_(keys.of(to, Role::Update)),
      reader_(context, settings.read, rule.columns ? Pass::Forward : Pass::Backward, rule.lines,
              rule.others, keys.ofRead(from, Role::Transfer)) {
  requireLineRead(settings.read, path);
  clipped_ = Buffer<uint64_t>::zeros(context, 1);
  const int64_t size = rule_.lines * rule_.others;
  if (rule_.buffer != TransferBuffer::None) sums_ = Buffer<float>(context, size);
  if (rule_.chops()) {
    ones_.assign(static_cast<size_t>(std::max(rule_.lines, rule_.others)), 1.0f);
    lineSigns_ = Buffer<float>(context, rule_.lines);
    otherSigns_ = Buffer<float>(context, rule_.others);
  }
  if (rule_.buffer == TransferBuffer::Dynamic) {
    means_ = Buffer<float>(context, size);
    references_ = Buffer<float>(context, size);
  }
  restart(context);
}

// Allocates nothing, so that a write of weights that has begun ends.
void LineTransfer::restart(const Context &context) {
  origin_ = reads_;
  settings_.schedule.restart();
  for (Buffer<float> *each : {&sums_, &means_, &references_})
    if (!each->empty()) detail::fillZero(context, each->data(), each->bytes());
  for (Buffer<float> *each : {&lineSigns_, &otherSigns_})
    if (!each->empty()) detail::copyFromHost(context, each->data(), ones_.data(), each->bytes());
}

DueVisits LineTransfer::oneEvent() const {
  DueVisits due;
  due.visits.lines = rule_.lines;
  due.visits.count = settings_.together;
  due.visits.first = reads_;
  due.visits.origin = origin_;
  due.visits.together = settings_.together;
  due.visits.random = settings_.random;
  due.visits.key = selectionKey_;
  return due;
}

DueVisits LineTransfer::dueWithin(int64_t samples) const {
  const TransferSchedule &schedule = settings_.schedule;
  DueVisits due = oneEvent();
  due.visits.count =
      settings_.together * schedule.dueWithin(TransferSchedule::Unit::Samples, samples);
  due.firstTap = schedule.period() - schedule.since() - 1;
  due.every = std::max<int64_t>(1, schedule.period());
  return due;
}

void LineTransfer::chop(const Context &context, MatrixView<const float> in, const DueVisits &due,
                        bool isX, const float *rates, float *out) const {
  constexpr int64_t kElementsOfLine = 1024;  // on a GPU
  const int64_t successive = context.onCpu() ? 1 : 1 + in.rows / kElementsOfLine;
  forEachByRows(context, (in.rows + successive - 1) / successive, in.cols,
                ChoppedInput{in, flips(due.visits), signs(isX), isX == rule_.columns, rates,
                             due.firstTap, due.every, out, successive});
}

LineTaps LineTransfer::taps(const DueVisits &due) const {
  LineTaps taps{};
  taps.visits = due.visits;
  taps.columns = rule_.columns;
  taps.firstTap = due.firstTap;
  taps.every = due.every;
  taps.reset.probability = settings_.resetProbability;
  taps.reset.firstEvent = ownWrite(due.visits.first);
  return taps;
}

const float *LineTransfer::signs(bool ofX) const {
  if (!rule_.chops()) return nullptr;
  return ofX == rule_.columns ? lineSigns_.data() : otherSigns_.data();
}

void LineTransfer::reserve(const Context &context, int64_t visits, float granularity) {
  if (visits == 0) return;
  seen_.reserve(context, visits * rule_.others);
  if (!settings_.read.is_perfect) {
    driven_.reserve(context, visits * rule_.lines);
    sensed_.reserve(context, visits * rule_.others);
    reader_.reserve(context, rowMajor<const float>(nullptr, rule_.others, rule_.lines), visits,
                    true);
  }
  if (rule_.buffer != TransferBuffer::None || rule_.stepSize > 0.0f) return;
  pulses_.reserve(context, visits * rule_.others);
  trains_.reserve(context, visits, rule_.others, true, 1.0f, granularity, settings_.write);
}

void LineTransfer::read(const Context &context, const LineVisits &visits) {
  if (settings_.read.is_perfect) return;
  const auto driven = rowMajor(driven_.data(), visits.count, rule_.lines);
  const auto sensed = rowMajor(sensed_.data(), visits.count, rule_.others);
  forEach(context, driven.size(), DrivenLines{visits, driven.data});
  const auto product = [&](MatrixView<const float> in, MatrixView<float> sums) {
    forEach(context, sums.size(), LineProduct{visits, in, seen_.data(), sums});
  };
  reader_.run(context, rowMajor<const float>(nullptr, rule_.others, rule_.lines),
              std::cref(product),  // by reference, so that std::function allocates nothing
              driven, sensed, visits.first);
  copy(context, sensed, rowMajor(seen_.data(), visits.count, rule_.others));
}

LinePulses LineTransfer::writeTrains(const Context &context, const LineVisits &visits, float lr,
                                     PulsedDevice &to) {
  const float granularity = to.granularity();
  const auto reads = rowMajor<const float>(seen_.data(), visits.count, rule_.others);
  forEach(context, reads.size(),
          TrainClips{reads.data, lr / granularity, static_cast<float>(settings_.write.desired_bl),
                     clipped_.data(), visits.fault});
  trains_.count(context, reads, true, -lr, granularity, settings_.write, writeKey_, visits.first,
                pulses_.data(), to.slotCounter());
  return {visits, rule_.columns, false, pulses_.data(), visits.first};
}

LinePulses LineTransfer::run(const Context &context, const DueVisits &due, float lr,
                             PulsedDevice &to, const float *rates) {
  const LineVisits &visits = due.visits;
  read(context, visits);
  reads_ += static_cast<uint64_t>(visits.count);
  const int64_t elements = visits.count * rule_.others;
  if (rule_.buffer == TransferBuffer::None) {
    if (!isDigital(settings_.write.pulse_type)) return writeTrains(context, visits, lr, to);
    forEach(context, elements, Scaler{lr, seen_.data()});
    return {visits, rule_.columns, true, seen_.data(), visits.first};
  }
  LineRule rule = rule_;
  rule.gain *= lr;
  forEachByRows(context, visits.count, rule_.others,
                LineCollector{rule,
                              flips(visits),
                              {sums_.data(), means_.data(), references_.data(), lineSigns_.data(),
                               otherSigns_.data()},
                              writeKey_,
                              rates,
                              due.firstTap,
                              due.every,
                              seen_.data(),
                              clipped_.data()});
  if (rule_.chops())
    forEach(context, rule_.lines + rule_.others,
            ChopperTurner{flips(visits), lineSigns_.data(), otherSigns_.data()});
  return {visits, rule_.columns, rule_.stepSize > 0.0f, seen_.data(), visits.first};
}

uint64_t LineTransfer::clipped(const Context &context) const {
  return detail::valueOnHost(context, clipped_.data());
}

float LineTransfer::largestBuffered(const Context &context) const {
  if (sums_.empty()) return 0.0f;
  Buffer<float> maxima(context, rule_.lines);
  rowAbsMax(context, rowMajor(sums_.data(), rule_.lines, rule_.others), maxima.data());
  std::vector<float> each(static_cast<size_t>(rule_.lines));
  detail::copyToHost(context, each.data(), maxima.data(), maxima.bytes());
  return *std::max_element(each.begin(), each.end());
}

size_t LineTransfer::memoryBytes() const {
  return sums_.heldBytes() + means_.heldBytes() + references_.heldBytes() + lineSigns_.heldBytes() +
         otherSigns_.heldBytes();
}

void LineTransfer::saveTo(const Context &context, State &state, const std::string &prefix) const {
  const std::vector<int64_t> shape{rule_.lines, rule_.others};
  state.values[prefix + "reads"] = Value(reads_);
  state.values[prefix + "origin"] = Value(origin_);
  if (!state.packs(context, prefix + "clipped", clipped_))
    state.values[prefix + "clipped"] = Value(clipped(context));
  settings_.schedule.saveTo(state, prefix + "since");
  if (!sums_.empty()) state.put(context, prefix + "buffer", Tensor::Type::F32, shape, sums_);
  if (rule_.chops()) {
    state.put(context, prefix + "line_signs", Tensor::Type::F32, {rule_.lines}, lineSigns_);
    state.put(context, prefix + "other_signs", Tensor::Type::F32, {rule_.others}, otherSigns_);
  }
  if (!means_.empty()) {
    state.put(context, prefix + "means", Tensor::Type::F32, shape, means_);
    state.put(context, prefix + "references", Tensor::Type::F32, shape, references_);
  }
}

void LineTransfer::loadFrom(const Context &context, const State &state, const std::string &prefix) {
  const std::vector<int64_t> shape{rule_.lines, rule_.others};
  const uint64_t reads = state.counter(prefix + "reads", kMostCounted);
  const uint64_t origin = state.counter(prefix + "origin", kMostCounted);
  PULSORA_CHECK(StateError, origin <= reads, prefix, "origin is ", origin, " and ", prefix,
                "reads ", reads, " in the state; the state is damaged");
  const uint64_t clipped = state.packed ? 0 : state.counter(prefix + "clipped");
  settings_.schedule.loadFrom(state, prefix + "since");
  if (!sums_.empty()) state.take(context, prefix + "buffer", Tensor::Type::F32, shape, sums_);
  if (rule_.chops()) {
    state.take(context, prefix + "line_signs", Tensor::Type::F32, {rule_.lines}, lineSigns_);
    state.take(context, prefix + "other_signs", Tensor::Type::F32, {rule_.others}, otherSigns_);
    for (const char *name : {"line_signs", "other_signs"})
      requireValues(state, prefix + name, "1 or -1",
                    [](float sign, int64_t) { return std::abs(sign) == 1.0f; });
  }
  if (!means_.empty()) {
    state.take(context, prefix + "means", Tensor::Type::F32, shape, means_);
    state.take(context, prefix + "references", Tensor::Type::F32, shape, references_);
  }
  if (!state.unpacks(context, prefix + "clipped", clipped_))
    detail::copyFromHost(context, clipped_.data(), &clipped, sizeof clipped);
  reads_ = reads;
  origin_ = origin;
}

}  // namespace pulsora
