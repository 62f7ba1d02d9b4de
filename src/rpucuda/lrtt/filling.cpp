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

/// The mean over the cells of an array of |w| / reach. `sums` has room for a number per row.
double meanOf(const Context &context, const PulsedDevice &array, float reach, double *sums) {
  sumRows(context, array.rows(), array.cols(), ReachTerm{array.weights(), reach}, sums);
  std::vector<double> rows(static_cast<size_t>(array.rows()));
  detail::copyToHost(context, rows.data(), sums, rows.size() * sizeof(double));
  double sum = 0.0;
  for (const double row : rows) sum += row;
  return sum / static_cast<double>(array.size());
}

int64_t mostRows(const LRTTAdapter &adapter) {
  return std::max(adapter.a().rows(), adapter.b().rows());
}

double share(const State &state, const std::string &name) {
  const auto found = state.values.find(name);
  const double *value = found == state.values.end() ? nullptr : found->second.real();
  PULSORA_CHECK(StateError, value && *value >= 0.0 && *value <= 1.0, "the state has no number '",
                name, "' between 0 and 1; it is incomplete or damaged");
  return *value;
}

}  // namespace

AdapterFilling::AdapterFilling(const Context &context, const LRTTSettings &settings,
                               const LRTTAdapter &adapter)
    : reach_(settings.fastReach), sums_(context, mostRows(adapter)) {
  times_.reserve(kTimes + 1);
  restart(context, adapter, true);
}

AdapterFilling::Means AdapterFilling::measure(const Context &context, const LRTTAdapter &adapter,
                                              double *sums) const {
  return {meanOf(context, adapter.a(), reach_, sums), meanOf(context, adapter.b(), reach_, sums)};
}

bool AdapterFilling::passed(const Context &context, const LRTTAdapter &adapter,
                            uint64_t miniBatch) {
  ++since_;
  if (since_ % kLook != 0) return false;
  const Means now = measure(context, adapter, sums_.data());
  if (std::max(fillingOf(now.a, start_.a), fillingOf(now.b, start_.b)) < kFull) return false;
  times_.push_back(miniBatch);
  if (times_.size() > kTimes) times_.erase(times_.begin());
  return true;
}

void AdapterFilling::restart(const Context &context, const LRTTAdapter &adapter, bool transferred) {
  start_ = measure(context, adapter, sums_.data());
  if (transferred) since_ = 0;
}

Value::Map AdapterFilling::describe(const Context &context, const LRTTAdapter &adapter) const {
  Buffer<double> sums(context, mostRows(adapter));
  const Means now = measure(context, adapter, sums.data());
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
  state.values[prefix + "times"] = Value(times());
}

void AdapterFilling::loadFrom(const State &state, const std::string &prefix) {
  const Means start{share(state, prefix + "start_a"), share(state, prefix + "start_b")};
  const auto since = static_cast<int64_t>(state.counter(prefix + "since", kMostCounted));
  const auto found = state.values.find(prefix + "times");
  const Value::List *list = found == state.values.end() ? nullptr : found->second.list();
  std::vector<uint64_t> times;
  times.reserve(kTimes + 1);
  bool fits = list && list->size() <= kTimes;
  for (size_t i = 0; fits && i < list->size(); ++i) {
    const int64_t *time = (*list)[i].integer();
    fits = time && *time > (times.empty() ? 0 : static_cast<int64_t>(times.back()));
    if (fits) times.push_back(static_cast<uint64_t>(*time));
  }
  PULSORA_CHECK(StateError, fits, "'", prefix, "times' of the state is no list of at most ", kTimes,
                " growing numbers of mini-batches; the state is incomplete or damaged");
  start_ = start;
  since_ = since;
  times_ = std::move(times);
}

}  // namespace pulsora
