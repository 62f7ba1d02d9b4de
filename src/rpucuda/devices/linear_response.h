#pragma once

#include "devices/pulsed_model.h"

// Steps that change linearly with the weight, shared by LinearStep and the soft-bounds models. One
// pulse is
//   multiplicative noise:  w' = w + (k w + s)(1 + sigma xi)
//   additive noise:        w' = w +  k w + s (1 + sigma xi)
// with a signed step s and slope k per direction. Both recursions are solved in closed form;
// everything is written through phi(a) = (e^a - 1)/a and psi(a) = log(1 + a)/a, which stay accurate
// as k goes to 0 (ConstantStep).

namespace RPU {

/// (e^a - 1)/a for abs(a) <= 1/2, to 3e-7.
RPU_HD float expm1Ratio(float a) {
  float y = RPU::fma(a, 1.0f / 5040.0f, 1.0f / 720.0f);
  y = RPU::fma(y, a, 1.0f / 120.0f);
  y = RPU::fma(y, a, 1.0f / 24.0f);
  y = RPU::fma(y, a, 1.0f / 6.0f);
  y = RPU::fma(y, a, 0.5f);
  return RPU::fma(y, a, 1.0f);
}

/// log(1 + a)/a, also at a = 0.
RPU_HD float log1pRatio(float a) {
  const float series = RPU::fma(a, RPU::fma(a, 1.0f / 3.0f, -0.5f), 1.0f);
  return RPU::abs(a) < 1e-2f ? series : RPU::log1p(a) / a;
}

/// PulsedResponse with a slope per direction and what the closed form needs of it.
struct LinearResponse : PulsedResponse {
  float slope_up;    // k of an up pulse: d(step)/dw
  float slope_down;  // k of a down pulse, signed as it adds to the weight
  float rate_up;     // log(1 + k)/k
  float rate_down;
  float spread_up;  // multiplicative: log(1 + (k sigma/(1+k))^2)/k^2; additive: sigma^2 / phi(2 log
                    // rho)
  float spread_down;

  template <class Visitor>
  RPU_HD void members(Visitor &&f) {
    PulsedResponse::members(f);
    f(slope_up);
    f(slope_down);
    f(rate_up);
    f(rate_down);
    f(spread_up);
    f(spread_down);
  }
  RPU_HD void dropClosedForm() { rate_up = rate_down = spread_up = spread_down = 0.0f; }
};

/// Spread per pulse in the closed form. With rho = 1 + k: sigma^2/rho^2 psi((k sigma/rho)^2) if the
/// noise is multiplicative; sigma^2/phi(2 log rho) if additive.
RPU_HD float linearSpread(float k, float rate, float sigma, bool multiplicative) {
  const float ratio = sigma / (1.0f + k);
  const float kr = k * ratio;
  return multiplicative ? ratio * ratio * log1pRatio(kr * kr)
                        : sigma * sigma / expm1Ratio(2.0f * k * rate);
}

/// Slopes of soft bounds: each step vanishes at its bound, or at 1/up (1/down) times the bound.
RPU_HD void softSlopes(LinearResponse &r, float up = 1.0f, float down = 1.0f) {
  // A bound at 0 leaves a step that is 0 everywhere it could be taken.
  r.step_up = r.w_max != 0.0f ? r.step_up : 0.0f;
  r.step_down = r.w_min != 0.0f ? r.step_down : 0.0f;
  r.slope_up = r.w_max != 0.0f ? -up * r.step_up / r.w_max : 0.0f;
  r.slope_down = r.w_min != 0.0f ? down * r.step_down / r.w_min : 0.0f;
}

/// Completes a response whose steps, bounds and slopes are known.
RPU_HD void finishLinearResponse(LinearResponse &r, float sigma, bool multiplicative) {
  r.rate_up = log1pRatio(r.slope_up);
  r.rate_down = log1pRatio(r.slope_down);
  r.spread_up = linearSpread(r.slope_up, r.rate_up, sigma, multiplicative);
  r.spread_down = linearSpread(r.slope_down, r.rate_down, sigma, multiplicative);
}

/// What cycle noise scales with: the whole step k v + s, or s alone. Written without a choice
/// between two values: compilers do not vectorise one whose condition is the same for all cells.
RPU_HD float noiseBase(float k, float v, float s, bool multiplicative) {
  const float whole = multiplicative ? 1.0f : 0.0f;
  return RPU::fma(whole * k, v, s);
}

/// One pulse at weight w. The step is that at v, which is w, or w seen from a reference.
RPU_HD float linearPulse(float w, float v, bool up, const LinearResponse &r, float sigma,
                         bool multiplicative, float xi) {
  const float s = r.step(up);
  const float k = up ? r.slope_up : r.slope_down;
  const float step = RPU::fma(k, v, s);
  return w + RPU::fma(noiseBase(k, v, s, multiplicative), sigma * xi, step);
}

/// n pulses at once. mean = w + (k v + s)(rho^n - 1)/k;
/// sd = (k v + s) rho^n sqrt(((rho^2 + k^2 sigma^2)/rho^2)^n - 1)/k, or s sigma sqrt((1 -
/// rho^2n)/(1 - rho^2)). Exact for additive noise; the multiplicative form neglects a skewness of
/// about 3 abs(k) sigma (sqrt(n) - 1/sqrt(n)), of which 3 abs(k) sigma sqrt(n) is the bound used
/// here (no division in the inner loop).
RPU_HD Moments linearPulses(float w, float v, float n, bool up, const LinearResponse &r,
                            float sigma, bool multiplicative) {
  const float s = r.step(up);
  const float k = up ? r.slope_up : r.slope_down;
  const float step = RPU::fma(k, v, s);
  const float nk = n * k;
  const float exponent = nk * (up ? r.rate_up : r.rate_down);  // n log(rho)
  const float growth =
      (n * (up ? r.rate_up : r.rate_down)) * expm1Ratio(exponent);  // (rho^n - 1)/k
  const float variance = n * (up ? r.spread_up : r.spread_down);
  // As in noiseBase(): `whole` is 1 or 0, and products with it are exact.
  const float whole = multiplicative ? 1.0f : 0.0f;
  const float tail = expm1Ratio(whole * (variance * (k * k)) + (1.0f - whole) * (2.0f * exponent));
  const float growthOfNoise = RPU::fma(whole * k, growth, 1.0f);  // rho^n if multiplicative
  const float slope = whole * (3.0f * k * sigma);
  const float noise = variance * tail;  // 0 without cycle noise
  // Products with 0 or 1, which are exact, because GCC 13 does not vectorise these as choices.
  const float root = RPU::sqrtOfNormal(RPU::max(noise, 0x1p-100f)) * (noise > 0.0f ? 1.0f : 0.0f);
  Moments m;
  m.mean = RPU::fma(step, growth, w);
  m.sd = noiseBase(k, v, s, multiplicative) * growthOfNoise * root;
  const float skewnessSquared = slope * slope * n;
  // The series above hold for abs(n log rho) <= 1/4; coarser devices take their pulses one by one.
  m.skewnessSquared = skewnessSquared + (RPU::abs(exponent) <= 0.25f ? 0.0f : 1.0f);
  return m;
}

}  // namespace RPU
