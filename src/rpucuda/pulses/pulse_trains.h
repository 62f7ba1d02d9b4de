#pragma once

#include "numerics/math.h"
#include "numerics/random.h"
#include "pulses/update_parameters.h"

// Firing probabilities of lines and their random numbers: one formula each, for every backend.
// Source: Gokmen & Vlasov, Front. Neurosci. 10:333 (2016), with the update management of AIHWKit.

namespace pulsora {

/// The scaling of one sample's pulse trains: a slot of x line j fires with probability min(1,
/// xScale |x_j|), a slot of d line i with min(1, dScale |d_i|); xScale * dScale = lr / (granularity
/// * length).
struct PulseTrainScale {
  int length;  ///< slots of this sample; 0 if nothing is to be sent
  float xScale;
  float dScale;
  float strength;  ///< lr max|x| max|d| / granularity: the slots that the largest element needs
};

/// Longest pulse train that lr / granularity may require when the length is not fixed.
constexpr float kLongestTrain = 65536.0f;

/// The length of every pulse train, or its upper limit where each sample has its own
/// (update_bl_management).
PULSORA_HD float longestTrain(const UpdateParameters &p, float lr, float granularity) {
  const float desired = static_cast<float>(p.desired_bl);
  const bool follows = !p.fixed_bl && !p.update_bl_management && granularity * desired < lr;
  return follows ? pulsora::min(-pulsora::floor(-(lr / granularity)), kLongestTrain) : desired;
}

/// Scale and length of one sample's pulse trains. `lr` is a magnitude; xMax and dMax are the
/// largest |x| and |d| of the sample. Maxima below 1e-30 count as 0.
PULSORA_HD PulseTrainScale trainScale(const UpdateParameters &p, float lr, float granularity,
                                      float xMax, float dMax) {
  constexpr float kSmallest = 1e-30f;
  constexpr float kLargest = 3e38f;  // scales stay finite, so that a zero never fires
  const bool managed = p.update_management || p.update_bl_management;
  const float scaledDMax = p.um_grad_scale * dMax;
  PulseTrainScale scale{0, 0.0f, 0.0f, lr * xMax * dMax / granularity};
  if (!(lr > 0.0f) || xMax < kSmallest || scaledDMax < kSmallest) return scale;

  float length = longestTrain(p, lr, granularity);
  const float strength = lr * xMax * scaledDMax / granularity;
  if (p.update_bl_management)
    length = pulsora::max(pulsora::min(length, -pulsora::floor(-strength)), 1.0f);
  const float perSlot = pulsora::min(lr / (granularity * length), kLargest);
  scale.length = static_cast<int>(length);
  if (!managed) {
    scale.xScale = scale.dScale = pulsora::sqrt(perSlot);
  } else if (strength > length) {
    // Beyond the longest pulse train, large d saturate: the x side never exceeds probability 1.
    scale.xScale = 1.0f / xMax;
    scale.dScale = pulsora::min(perSlot * xMax, kLargest);
  } else {
    const float balance =
        pulsora::sqrt(scaledDMax) / pulsora::sqrt(xMax);  // their quotient might overflow
    scale.xScale = pulsora::sqrt(perSlot) * balance;
    scale.dScale = pulsora::sqrt(perSlot) / balance;
  }
  return scale;
}

/// Whether the largest elements of a sample need more than a pulse per slot; the sample's expected
/// update is then smaller than lr d^T x.
PULSORA_HD bool trainsClip(const PulseTrainScale &t, float xMax, float dMax) {
  constexpr float kOne = 1.00001f;  // probabilities of 1 may have been rounded up
  return t.xScale * xMax > kOne || t.dScale * dMax > kOne;
}

/// A resolution as a step: values above 1 are a number of steps.
PULSORA_HD float resolutionStep(float res) { return res > 1.0f ? 1.0f / res : res; }

/// Probability that a slot of a line fires. `rounding` in [0, 1) decides a stochastic rounding to
/// the resolution.
PULSORA_HD float pulseProbability(float value, float scale, float step, bool stochastic,
                                  float rounding) {
  // In this order, min and max turn NaN into a probability of 0.
  float p = pulsora::max(0.0f, pulsora::min(scale * pulsora::abs(value), 1.0f));
  if (step > 0.0f) {
    const float dither = stochastic ? rounding - 0.5f : 0.0f;
    p = pulsora::clamp(pulsora::rint(p / step + dither) * step, 0.0f, 1.0f);
  }
  return p;
}

/// A slot fires if the upper 31 bits of its random word lie below this.
PULSORA_HD uint32_t pulseThreshold(float probability) {
  // 2^31 does not fit a signed conversion, the only conversion that vector units have.
  const float scaled = pulsora::min(probability * 0x1p31f, 2147483520.0f);
  return probability >= 1.0f ? 0x80000000u : static_cast<uint32_t>(static_cast<int32_t>(scaled));
}
PULSORA_HD uint32_t slotFires(uint32_t word, uint32_t threshold) {
  return (word >> 1) < threshold ? 1u : 0u;
}

/// Random words of a line's slot for four consecutive samples; the word of a sample is v[sample %
/// 4].
PULSORA_HD Philox4 slotWords(RandomKey key, Purpose purpose, uint64_t line, uint64_t sample,
                             uint32_t slot) {
  return draw(key, purpose, line, sample >> 2, slot);
}

/// Signed level of a line for the deterministic pulse types: mean counts round(length p), or the
/// probability of the value after quantisation relative to the sample's maximum.
PULSORA_HD float pulseLevel(float value, const PulseTrainScale &t, float scale, float largest,
                            bool counts, float step) {
  float magnitude = pulsora::abs(value);
  if (!counts && step > 0.0f && largest > 0.0f)
    magnitude = pulsora::rint(magnitude / largest / step) * step * largest;
  // Limits as in pulseProbability().
  const float p = t.length > 0 ? pulsora::max(0.0f, pulsora::min(scale * magnitude, 1.0f)) : 0.0f;
  const float level = counts ? pulsora::rint(p * static_cast<float>(t.length)) : p;
  return value < 0.0f ? -level : level;
}

}  // namespace pulsora
