#pragma once

#include <gtest/gtest.h>

#include "storage/state.h"

namespace pulsora::testing {

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
