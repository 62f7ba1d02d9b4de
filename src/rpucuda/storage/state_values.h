#pragma once

#include <cstring>
#include <string>

#include "core/check.h"
#include "storage/state.h"

namespace pulsora {

/// Throws StateError unless holds(value, i) is true for every element i of a tensor of single
/// precision. `wanted` says what is expected. The tensor has been taken, so that its size fits.
template <class Predicate>
void requireValues(const State &state, const std::string &name, const char *wanted,
                   const Predicate &holds) {
  if (state.packed) return;  // written by a tile of this process group
  const Tensor &tensor = state.tensors.at(name);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    float value = 0.0f;
    std::memcpy(&value, tensor.bytes.data() + static_cast<size_t>(i) * sizeof value, sizeof value);
    PULSORA_CHECK(StateError, holds(value, i), "tensor '", name, "' of the state has ", value,
                  ", element ", i, " in order, where ", wanted,
                  " is expected; the state is damaged");
  }
}

}  // namespace pulsora
