#pragma once

#include "devices/pulsed_model.h"

// Mean and variance of a weight over the samples of one update, in their order and without a draw,
// for models whose step is an affine function of the weight. One pulse is, per direction,
//   multiplicative noise:  w' = w + (k w + c)(1 + sigma xi)
//   additive noise:        w' = w +  k w + c + s sigma xi
// With rho = 1 + k and t = k m + c it takes the mean m and the variance sigma^2 u to
//   m' = m + t
//   u' = (rho^2 + k^2 sigma^2) u + t^2    multiplicative
//   u' = rho^2 u + s^2                    additive
// The n pulses of a sample are taken together: rho^n is exact; k^2 sigma^2, in its leading term.
// A weight with additive noise is exactly normal. With multiplicative noise the noise of a pulse
// depends on the noise of the pulses before; to leading order the square of the skewness is below
// 12 sigma^2 times the sum over pulses of k^2/rho^2.

namespace pulsora {

/// (e^a - 1)/a for abs(a) <= 1/4, to 9e-8; 1 at a = 0. Minimax.
PULSORA_HD float expm1Ratio(float a) {
  return polynomial(a, 1.0f, 0x1.ffff92p-2f, 0x1.55559p-3f, 0x1.5636dap-5f, 0x1.1126ecp-7f);
}

/// The map of a pulse in one direction.
struct AffineMap {
  float slope;    // k
  float step;     // c, the signed step at weight 0
  float noise;    // s, which additive noise scales with
  float rate;     // log(1 + k)/k for abs(k) <= 1/4
  float halving;  // 1/(2 + k), which additive noise alone needs

  template <class Visitor>
  PULSORA_HD void members(Visitor &&f) {
    f(slope);
    f(step);
    f(noise);
    f(rate);
    f(halving);
  }
  /// A bound of k^2/rho^2 for abs(k) <= 1/4.
  PULSORA_HD float steepness() const {
    const float k = pulsora::abs(slope);
    const float bound = k * pulsora::fma(4.0f / 3.0f, k, 1.0f);
    return bound * bound;
  }
};

/// The maps of both directions. A model with Device::affineMaps(r, p) has Params::mult_noise.
struct AffineMaps {
  AffineMap up;
  AffineMap down;

  template <class Visitor>
  PULSORA_HD void members(Visitor &&f) {
    up.members(f);
    down.members(f);
  }
  /// The largest slope's magnitude.
  PULSORA_HD float steepest() const {
    return pulsora::maxForCompare(pulsora::abs(up.slope), pulsora::abs(down.slope));
  }
};

/// The map of single pulses in one direction, as AffineMoments::addOne() takes it.
struct OnePulseMap {
  float slope;   // k
  float step;    // c
  float noise;   // (k sigma)^2, or with additive noise s^2
  float growth;  // rho^2

  template <bool kMultiplicative>
  PULSORA_HD static OnePulseMap of(const AffineMap &map, float sigma) {
    const float scale = kMultiplicative ? map.slope * sigma : map.noise;
    const float rho = 1.0f + map.slope;
    return {map.slope, map.step, scale * scale, rho * rho};
  }
};

/// Moments of one weight during an update.
struct AffineMoments {
  float mean;
  float spread;  // u: the variance in units of sigma^2
  float low;     // extremes on the way
  float high;
  float widest;
  float most;    // pulses of a sample
  float pulses;  // in both directions
  float net;     // up less down

  template <class Visitor>
  PULSORA_HD void members(Visitor &&f) {
    f(mean);
    f(spread);
    f(low);
    f(high);
    f(widest);
    f(most);
    f(pulses);
    f(net);
  }

  PULSORA_HD static AffineMoments of(float w) { return {w, 0.0f, w, w, 0.0f, 0.0f, 0.0f, 0.0f}; }

  /// The n >= 0 pulses of a sample.
  template <bool kMultiplicative>
  PULSORA_HD void add(float n, bool isUp, const AffineMaps &maps, float sigma) {
    const float k = isUp ? maps.up.slope : maps.down.slope;
    const float c = isUp ? maps.up.step : maps.down.step;
    const float t = pulsora::fma(k, mean, c);
    const float scaled = (n - 1.0f) * (isUp ? maps.up.rate : maps.down.rate);
    const float growth = scaled * expm1Ratio(scaled * k);  // (rho^(n-1) - 1)/k
    const float power = pulsora::fma(k, growth, 1.0f);     // rho^(n-1)
    const float sum = growth + power;                      // (rho^n - 1)/k
    const float whole = pulsora::fma(k, sum, 1.0f);        // rho^n
    float added = 0.0f;
    if constexpr (kMultiplicative) {
      const float noisy = k * sigma;
      added = n * (power * power) * pulsora::fma(noisy * noisy, spread, t * t);
    } else {
      const float s = isUp ? maps.up.noise : maps.down.noise;
      const float halving = isUp ? maps.up.halving : maps.down.halving;
      // The sum of rho^2j over j < n.
      const float squares = pulsora::fma(growth * (power + 1.0f), halving, power * power);
      added = s * s * squares;
    }
    const bool any = n > 0.0f;
    const float moved = pulsora::fma(t, sum, mean);
    const float spreadOut = pulsora::fma(whole * whole, spread, added);
    mean = any ? moved : mean;
    spread = any ? spreadOut : spread;
    low = pulsora::minForCompare(low, mean);
    high = pulsora::maxForCompare(high, mean);
    widest = pulsora::maxForCompare(widest, spread);
    most = pulsora::maxForCompare(most, n);
    pulses += n;
    net += isUp ? n : -n;
  }

  /// One pulse: the bits of add() with n = 1, but for the counts, which countOnes() sets.
  template <bool kMultiplicative>
  PULSORA_HD void addOne(bool isUp, const OnePulseMap &up, const OnePulseMap &down) {
    const float noise = isUp ? up.noise : down.noise;
    const float growth = isUp ? up.growth : down.growth;
    const float t = pulsora::fma(isUp ? up.slope : down.slope, mean, isUp ? up.step : down.step);
    const float added = kMultiplicative ? pulsora::fma(noise, spread, t * t) : noise;
    mean = t + mean;
    spread = pulsora::fma(growth, spread, added);
    low = pulsora::minForCompare(low, mean);
    high = pulsora::maxForCompare(high, mean);
    widest = pulsora::maxForCompare(widest, spread);
  }
  /// Counts all pulses, `ups` of them up, where each was one of addOne().
  PULSORA_HD void countOnes(float all, float ups) {
    most = all > 0.0f ? 1.0f : 0.0f;
    pulses = all;
    net = ups - (all - ups);
  }

  /// The weight with normal z. Valid only if `holds` is set to true: the forms of add() held in
  /// every sample, the skewness is below its limit, and no bound lay within five standard
  /// deviations of the mean on the way. One pulse is exact, and needs no distance from a bound.
  template <bool kMultiplicative>
  PULSORA_HD float drawn(float w, const AffineMaps &maps, const PulsedResponse &r,
                         const PulsedParams &p, float z, bool &holds) const {
    constexpr float kSteepest = 0.25f;
    const float steepest = maps.steepest();
    const float exponent =
        (most - 1.0f) * pulsora::maxForCompare(pulsora::abs(maps.up.slope * maps.up.rate),
                                               pulsora::abs(maps.down.slope * maps.down.rate));
    float skewnessSquared = 0.0f;
    if constexpr (kMultiplicative) {
      const float ups = 0.5f * (pulses + net) * maps.up.steepness();
      const float sum = pulsora::fma(0.5f * (pulses - net), maps.down.steepness(), ups);
      skewnessSquared = 12.0f * (p.dw_min_std * p.dw_min_std) * sum;
    }
    const float margin = 5.0f * deviation(widest, p.dw_min_std);
    // Integers, so that the loop vectorises; see closedFormHolds().
    const uint32_t gentle = steepest <= kSteepest ? 1U : 0U;
    const uint32_t within =
        (low - margin >= r.w_min ? 1U : 0U) & (high + margin <= r.w_max ? 1U : 0U);
    const uint32_t normal =
        (exponent <= 0.25f ? 1U : 0U) & (skewnessSquared < skewnessLimit(p) ? 1U : 0U);
    const uint32_t none = pulses == 0.0f ? 1U : 0U;
    const uint32_t one = pulses == 1.0f ? 1U : 0U;
    holds = (none | (gentle & (one | (within & normal)))) != 0;
    const float result = clipWeight(pulsora::fma(deviation(spread, p.dw_min_std), z, mean), r);
    return none != 0 ? w : result;
  }

 private:
  /// sigma sqrt(u).
  PULSORA_HD static float deviation(float u, float sigma) {
    const float root = pulsora::sqrtOfNormal(pulsora::maxForCompare(u, 0x1p-100f));
    return u > 0.0f ? sigma * root : 0.0f;
  }
};

}  // namespace pulsora
