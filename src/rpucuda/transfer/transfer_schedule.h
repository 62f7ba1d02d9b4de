#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "core/check.h"
#include "storage/state.h"

namespace pulsora {

/// The times at which transfers are due: after every `period` samples, or mini-batches. After n
/// units exactly floor(n / period) transfers have been due, however the samples were split.
class TransferSchedule {
 public:
  enum class Unit { Samples, MiniBatches };

  /// With `period` 0, no transfer is ever due.
  TransferSchedule(int64_t period, Unit unit) : period_(period), unit_(unit) {}

  int64_t period() const { return period_; }
  /// Units since the last due transfer; below the period.
  int64_t since() const { return since_; }
  /// Whether this schedule counts in these units.
  bool counts(Unit unit) const { return period_ > 0 && unit_ == unit; }

  /// How many of the next `samples` samples may be taken before a transfer is due.
  int64_t next(int64_t samples) const {
    return counts(Unit::Samples) ? std::min(samples, period_ - since_) : samples;
  }
  /// Whether a transfer is due within the next `count` units.
  bool due(Unit unit, int64_t count) const { return dueWithin(unit, count) > 0; }
  /// Number of transfers that are due within the next `count` units.
  int64_t dueWithin(Unit unit, int64_t count) const {
    if (!counts(unit) || count < period_ - since_) return 0;
    return 1 + (count - (period_ - since_)) / period_;
  }
  /// The most of `samples` samples that are taken between two transfers.
  int64_t longest(int64_t samples) const {
    return counts(Unit::Samples) ? std::min(samples, period_) : samples;
  }
  /// The most transfers that may be due within `samples` samples.
  int64_t mostWithin(int64_t samples) const {
    return counts(Unit::Samples) ? (samples + period_ - 1) / period_ : 0;
  }
  /// Counts `count` units, at most next(); returns whether a transfer is due now.
  bool passed(Unit unit, int64_t count) {
    if (!counts(unit)) return false;
    since_ += count;
    if (since_ < period_) return false;
    since_ = 0;
    return true;
  }

  /// Counts `count` units, whatever is due within them.
  void take(Unit unit, int64_t count) {
    if (counts(unit)) since_ = (since_ + count) % period_;
  }
  /// Counts from 0 again.
  void restart() { since_ = 0; }

  void saveTo(State &state, const std::string &name) const { state.values[name] = Value(since_); }
  /// StateError if the saved count does not fit this schedule; nothing has changed then.
  void loadFrom(const State &state, const std::string &name) {
    const auto since = static_cast<int64_t>(state.counter(name));
    PULSORA_CHECK(StateError, since == 0 || since < period_, name, " is ", since,
                  " in the state, but a transfer is due every ", period_, "; the state is damaged");
    since_ = since;
  }

 private:
  int64_t period_;
  Unit unit_;
  int64_t since_ = 0;
};

}  // namespace pulsora
