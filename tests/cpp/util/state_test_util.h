#pragma once

#include <gtest/gtest.h>

#include "storage/state.h"

namespace pulsora::testing {

/// Whether a value of a state is a count that earlier states did not have; it is 0 without.
inline bool isLaterCount(const std::string &name) {
  const auto endsWith = [&](const std::string &end) {
    return name.size() >= end.size() &&
           name.compare(name.size() - end.size(), end.size(), end) == 0;
  };
  return endsWith("repeated_reads") || endsWith("pulse_slots") ||
         endsWith("past_forward_samples") || endsWith("past_backward_samples");
}

/// A state without the counts of repeated reads: tiles that share the rows of a mini-batch count
/// those of their own rows.
inline State withoutRepeats(State state) {
  for (auto it = state.values.begin(); it != state.values.end();) {
    const bool isRepeats = it->first.find("repeated_reads") != std::string::npos;
    it = isRepeats || it->first == State::kChecksum ? state.values.erase(it) : std::next(it);
  }
  return state;
}

/// Whether two states are equal to the bit; if not, says which tensor or value differs.
inline ::testing::AssertionResult sameState(const State &a, const State &b) {
  if (a.tensors.size() != b.tensors.size()) return ::testing::AssertionFailure() << "other tensors";
  for (const auto &[name, tensor] : a.tensors) {
    const auto other = b.tensors.find(name);
    if (other == b.tensors.end()) return ::testing::AssertionFailure() << "no tensor " << name;
    if (tensor.bytes == other->second.bytes) continue;
    size_t at = 0;
    while (tensor.bytes[at] == other->second.bytes[at]) ++at;
    size_t count = 0;
    for (size_t i = 0; i < tensor.bytes.size(); ++i)
      count += tensor.bytes[i] != other->second.bytes[i];
    return ::testing::AssertionFailure() << name << " differs from byte " << at << " on, in "
                                         << count << " of " << tensor.bytes.size();
  }
  for (const auto &[name, value] : a.values) {
    const auto other = b.values.find(name);
    if (other == b.values.end() || !(other->second == value)) {
      return ::testing::AssertionFailure() << "value " << name << " differs";
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace pulsora::testing
