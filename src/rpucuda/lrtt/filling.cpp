#include "lrtt/filling.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "array/events.h"
#include "core/backend.h"

namespace pulsora {
namespace {

double fillingOf(double mean, double start) {
  return mean > start ? std::sqrt((mean - start) / (1.0 - start)) : 0.0;
}

double share(const State &state, const std::string &name) {
  const double value = state.number(name);
  PULSORA_CHECK(StateError, value >= 0.0 && value <= 1.0, "the state's number '", name, "' is ",
                value, "; it is between 0 and 1: the state is damaged");
  return value;
}

}  // namespace

AdapterFilling::Scratch::Scratch(const Context &context, const LRTTAdapter &adapter)
    : sums(context, std::max(adapter.a().rows(), adapter.b().rows())),
      rows(static_cast<size_t>(sums.size())) {}

double AdapterFilling::Scratch::meanOf(const Context &context, const PulsedDevice &array,
                                       float reach) {
  sumRows(context, array.rows(), array.cols(), ReachTerm{array.weights(), reach}, sums.data());
  const auto count = static_cast<size_t>(array.rows());
  detail::copyToHost(context, rows.data(), sums.data(), count * sizeof(double));
  double sum = 0.0;
  for (size_t i = 0; i < count; ++i) sum += rows[i];
  return sum / static_cast<double>(array.size());
}

AdapterFilling::AdapterFilling(const Context &context, const LRTTSettings &settings,
                               const LRTTAdapter &adapter)
    : reach_(settings.fastReach), scratch_(context, adapter) {
  times_.reserve(kTimes + 1);
  restart(context, adapter, true);
}

AdapterFilling::Means AdapterFilling::measure(const Context &context, const LRTTAdapter &adapter,
                                              Scratch &scratch) const {
  return {scratch.meanOf(context, adapter.a(), reach_),
          scratch.meanOf(context, adapter.b(), reach_)};
}

bool AdapterFilling::passed(const Context &context, const LRTTAdapter &adapter,
                            uint64_t miniBatch) {
  ++since_;
  if (since_ % kLook != 0) return false;
  const Means now = measure(context, adapter, scratch_);
  if (std::max(fillingOf(now.a, start_.a), fillingOf(now.b, start_.b)) < kFull) return false;
  times_.push_back(miniBatch);
  if (times_.size() > kTimes) times_.erase(times_.begin());
  return true;
}

void AdapterFilling::restart(const Context &context, const LRTTAdapter &adapter, bool transferred) {
  start_ = measure(context, adapter, scratch_);
  if (transferred) since_ = 0;
}

Value::Map AdapterFilling::describe(const Context &context, const LRTTAdapter &adapter) const {
  Scratch scratch(context, adapter);
  const Means now = measure(context, adapter, scratch);
  return {{"a", Value(fillingOf(now.a, start_.a))},
          {"b", Value(fillingOf(now.b, start_.b))},
          {"due", Value(kFull)}};
}

Value::List AdapterFilling::times() const {
  Value::List list;
  for (const uint64_t time : times_) list.emplace_back(time);
  return list;
}

void AdapterFilling::saveTo(State &state, const std::string &prefix) const {
  state.values[prefix + "start_a"] = Value(start_.a);
  state.values[prefix + "start_b"] = Value(start_.b);
  state.values[prefix + "since"] = Value(since_);
  Value::List list(kTimes - times_.size(), Value(0));  // of one length, so that damage shows
  for (const uint64_t time : times_) list.emplace_back(time);
  state.values[prefix + "times"] = Value(std::move(list));
}

void AdapterFilling::loadFrom(const State &state, const std::string &prefix) {
  const Means start{share(state, prefix + "start_a"), share(state, prefix + "start_b")};
  const auto since = static_cast<int64_t>(state.counter(prefix + "since", kMostCounted));
  const auto found = state.values.find(prefix + "times");
  const Value::List *list = found == state.values.end() ? nullptr : found->second.list();
  std::vector<uint64_t> times;
  times.reserve(kTimes + 1);
  bool fits = list && list->size() == kTimes;
  for (size_t i = 0; fits && i < kTimes; ++i) {
    const int64_t *time = (*list)[i].integer();
    const int64_t before = times.empty() ? 0 : static_cast<int64_t>(times.back());
    fits = time && (*time > before || (*time == 0 && times.empty()));
    if (fits && *time > 0) times.push_back(static_cast<uint64_t>(*time));
  }
  PULSORA_CHECK(StateError, fits, "'", prefix, "times' of the state are not ", kTimes,
                " numbers of mini-batches, zeros before growing ones; the state is incomplete or "
                "damaged");
  start_ = start;
  since_ = since;
  times_ = std::move(times);
}

}  // namespace pulsora
