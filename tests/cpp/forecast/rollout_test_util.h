#pragma once

#include <vector>

#include "forecast/rollout.h"

// Ensembles and features for tests of rollouts.

namespace pulsora {

using Floats = std::vector<float>;

/// An ensemble with weights of its own, in host memory.
struct Ensemble {
  EnsembleShape shape;
  Floats encoder, encoderBias, input, recurrent, bias, candidateBias, heads, logVarianceBias;

  EnsembleWeights weights() const {
    return {encoder.data(), encoderBias.data(),
            input.data(),   recurrent.data(),
            bias.data(),    shape.resetAfter ? candidateBias.data() : nullptr,
            heads.data(),   logVarianceBias.data()};
  }
};

/// Numbers between -1 and 1, equal on every machine.
inline float pseudo(uint32_t &state) {
  state = state * 1664525U + 1013904223U;
  return static_cast<float>(static_cast<int32_t>(state >> 8)) * 0x1p-23f - 1.0f;
}

inline Ensemble makeEnsemble(const EnsembleShape &s, uint32_t seed) {
  const auto fill = [&](int64_t count, float scale) {
    Floats values(static_cast<size_t>(count));
    for (float &value : values) value = scale * pseudo(seed);
    return values;
  };
  const auto scale = [](int64_t lines) { return 2.0f / std::sqrt(static_cast<float>(lines)); };
  return {s,
          fill(s.members * s.inputs * s.encoded, scale(s.inputs)),
          fill(s.members * s.encoded, 0.1f),
          fill(s.members * s.encoded * 3 * s.hidden, scale(s.encoded)),
          fill(s.members * s.hidden * 3 * s.hidden, scale(s.hidden)),
          fill(s.members * 3 * s.hidden, 0.1f),
          fill(s.members * s.hidden, 0.3f),
          fill(s.members * s.hidden * 2, scale(s.hidden)),
          fill(s.members, 0.5f)};
}

inline Floats makeFeatures(int64_t count, uint32_t seed) {
  Floats values;
  for (int64_t i = 0; i < count; ++i) values.push_back(2.0f * pseudo(seed));
  return values;
}

}  // namespace pulsora
