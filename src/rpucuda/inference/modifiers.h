#pragma once

#include <cstdint>

#include "core/vector_access.h"
#include "noise_models/noise_model.h"
#include "numerics/math.h"
#include "numerics/random.h"

namespace pulsora {

/// The change of weights in reads of hardware-aware training.
enum class Modifier {
  None,
  AddNormal,
  MultNormal,
  Discretize,
  DiscretizeAddNormal,
  DoReFa,
  Poly,
  ProgNoise,
  NoiseModel
};
template <>
struct EnumNames<Modifier> {
  static constexpr const char *kNames[] = {
      "none",   "add_normal", "mult_normal", "discretize", "discretize_add_normal",
      "dorefa", "poly",       "prog_noise",  "noise_model"};
};

/// Indices of draws with purpose WeightModifier: a normal, and uniforms for rounding and dropping,
/// four of which fill a block.
enum ModifierIndex : uint32_t { kNormalIndex = 0, kRoundIndex = 1, kDropIndex = 3, kTimeIndex = 5 };

/// The settings of a modifier that changes each weight by itself.
struct ModifierRule {
  Modifier modifier = Modifier::None;
  float std = 0.0f;
  float resolution = 0.0f;
  bool stochastic = false;
  float clip = 0.0f;
  FloatList coefficients;
  float gMax = 1.0f;
  float drop = 0.0f;
};

/// The nearest integer, halves away from 0.
PULSORA_HD float roundedAway(float x) {
  return pulsora::copySign(pulsora::floor(pulsora::abs(x) + 0.5f), x);
}

/// The weight that a training read sees of w, where `largest` is the magnitude to which the rule
/// refers; z is standard normal, u uniform in [0, 1).
PULSORA_HD float modified(const ModifierRule &rule, float w, float largest, float z, float u) {
  const float sigma = rule.std * largest;
  const float step = largest * rule.resolution;
  switch (rule.modifier) {
    case Modifier::AddNormal:
      return pulsora::fma(sigma, z, w);
    case Modifier::MultNormal:
      return pulsora::fma(sigma * w, z, w);
    case Modifier::Discretize:
    case Modifier::DiscretizeAddNormal: {
      const float shift = rule.stochastic ? u - 0.5f : 0.0f;
      const float level = step > 0.0f ? roundedAway(w / step + shift) * step : w;
      return rule.modifier == Modifier::Discretize ? level : pulsora::fma(sigma, z, level);
    }
    case Modifier::DoReFa: {
      const float gain = largest > 0.0f ? rule.clip / pulsora::abs(pulsora::tanh(largest)) : 0.0f;
      return roundedAway(gain * pulsora::tanh(w) / rule.resolution) * rule.resolution;
    }
    case Modifier::Poly:
    case Modifier::ProgNoise: {
      const float g = largest > 0.0f ? pulsora::abs(w) / largest : 0.0f;
      const float spread = sigma * polynomialOf(rule.coefficients, g);
      if (rule.modifier == Modifier::Poly) return pulsora::fma(spread, z, w);
      const float noisy = pulsora::abs(pulsora::fma(spread / rule.gMax, z, w));
      return w < 0.0f ? -noisy : noisy;
    }
    case Modifier::None:
    case Modifier::NoiseModel:
      break;
  }
  return w;
}

/// Modifies eight neighbouring cells for the training read `number`: to = W' / scale.
struct WeightModifier {
  ModifierRule rule;
  RandomKey key;
  uint64_t number;
  const float *weights;
  const float *made;     // weights over scales that take the place of the rule; null: none
  const float *scale;    // of each row
  const float *largest;  // of each row
  int64_t cells;
  int64_t cols;
  float *to;

  PULSORA_HD void operator()(int64_t group) const {
    const auto block = static_cast<uint64_t>(group);
    const int64_t first = 8 * group;
    const Normal8 z = normal8(draw(key, Purpose::WeightModifier, block, number, kNormalIndex));
    float rounds[8] = {};
    if (rule.stochastic) fillUniforms(block, kRoundIndex, rounds);
    float drops[8];
    for (float &drop : drops) drop = 1.0f;
    if (rule.drop > 0.0f) fillUniforms(block, kDropIndex, drops);
    float given[8];
    loadFloats(weights + first, cells - first, given);
    float seen[8] = {};
    if (made) loadFloats(made + first, cells - first, seen);
    int64_t row = first / cols;
    int64_t col = first % cols;
    for (int l = 0; l < 8; ++l) {
      if (first + l >= cells) break;
      const float s = scale[row];
      const float clipped = pulsora::clamp(given[l], -s, s);
      if (!made) seen[l] = modified(rule, clipped, largest[row], z.z[l], rounds[l]) / s;
      if (drops[l] < rule.drop || !(s > 0.0f)) seen[l] = 0.0f;
      const bool isLast = ++col == cols;
      row += isLast ? 1 : 0;
      col = isLast ? 0 : col;
    }
    storeFloats(seen, cells - first, to + first);
  }

 private:
  /// Uniform numbers of the eight cells of a block.
  PULSORA_HD void fillUniforms(uint64_t block, uint32_t index, float (&u)[8]) const {
    for (uint32_t half = 0; half < 2; ++half) {
      const Philox4 words = draw(key, Purpose::WeightModifier, block, number, index + half);
      for (uint32_t l = 0; l < 4; ++l) u[4 * half + l] = uniform(words.v[l]);
    }
  }
};

}  // namespace pulsora
