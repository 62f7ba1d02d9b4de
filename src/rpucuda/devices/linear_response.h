#pragma once

#include "devices/affine_moments.h"

// Steps that change linearly with the weight, shared by LinearStep and the soft-bounds models. One
// pulse is
//   multiplicative noise:  w' = w + (k w + s)(1 + sigma xi)
//   additive noise:        w' = w +  k w + s (1 + sigma xi)
// with a signed step s and slope k per direction. Both recursions are solved in closed form. It is
// written through n - 1, phi(a) = (e^a - 1)/a and psi(a) = log(1 + a)/a, so that n = 1 gives the
// bits of one pulse and that it stays accurate as k goes to 0 (ConstantStep).

namespace pulsora {

/// log(1 + a)/a for -1/4 <= a <= 0.3, to 4e-8; 1 at a = 0. Minimax.
PULSORA_HD float log1pRatio(float a) {
  return polynomial(a, 1.0f, -0x1.00000cp-1f, 0x1.55573cp-2f, -0x1.ffe534p-3f, 0x1.9855e8p-3f,
                    -0x1.586002p-3f, 0x1.43d72p-3f, -0x1.e83e1ep-4f);
}

/// PulsedResponse with a slope per direction, and quantities of the closed form.
struct LinearResponse : PulsedResponse {
  float slope_up;    // k of an up pulse: d(step)/dw
  float slope_down;  // k of a down pulse, signed as it adds to the weight
  float rate_up;     // log(1 + k)/k
  float rate_down;
  float halving_up;  // 1/(2 + k), which additive noise needs
  float halving_down;

  template <class Visitor>
  PULSORA_HD void members(Visitor &&f) {
    PulsedResponse::members(f);
    f(slope_up);
    f(slope_down);
    f(rate_up);
    f(rate_down);
    f(halving_up);
    f(halving_down);
  }
  PULSORA_HD void dropClosedForm() { rate_up = rate_down = halving_up = halving_down = 0.0f; }
  PULSORA_HD float slope(bool up) const { return up ? slope_up : slope_down; }
  /// The weight of equal up and down steps; 0 for a cell without slopes, or with equal ones.
  PULSORA_HD float symmetricPoint() const {
    const float slopes = slope_up + slope_down;
    return slopes != 0.0f ? (step_down - step_up) / slopes : 0.0f;
  }
};

/// Slopes of soft bounds: each step vanishes at its bound, or at 1/up (1/down) times the bound.
PULSORA_HD void softSlopes(LinearResponse &r, float up = 1.0f, float down = 1.0f) {
  // A bound at 0 leaves a step that is 0 everywhere it could be taken.
  r.step_up = r.w_max != 0.0f ? r.step_up : 0.0f;
  r.step_down = r.w_min != 0.0f ? r.step_down : 0.0f;
  r.slope_up = r.w_max != 0.0f ? -up * r.step_up / r.w_max : 0.0f;
  r.slope_down = r.w_min != 0.0f ? down * r.step_down / r.w_min : 0.0f;
}

/// Calls yes() or no() by a condition that all cells share: a branch on a GPU; on the CPU a sum
/// with factors of 1 and 0, which are exact, because compilers do not vectorise such a choice.
template <class Yes, class No>
PULSORA_HD float chooseForAll(bool condition, const Yes &yes, const No &no) {
#if PULSORA_DEVICE_CODE
  if (condition) return yes();
  return no();
#else
  const float whole = condition ? 1.0f : 0.0f;
  return whole * yes() + (1.0f - whole) * no();
#endif
}

/// Completes a response whose steps, bounds and slopes are known.
PULSORA_HD void finishLinearResponse(LinearResponse &r, bool multiplicative) {
  // Beyond these limits the closed forms of several pulses are refused, since abs(log rho) > 1/4;
  // any finite value will do.
  const float up = pulsora::clamp(r.slope_up, -0.25f, 0.3f);
  const float down = pulsora::clamp(r.slope_down, -0.25f, 0.3f);
  r.rate_up = log1pRatio(up);
  r.rate_down = log1pRatio(down);
  const auto unused = [] { return 0.0f; };
  r.halving_up = chooseForAll(multiplicative, unused, [&] { return 1.0f / (2.0f + up); });
  r.halving_down = chooseForAll(multiplicative, unused, [&] { return 1.0f / (2.0f + down); });
}

/// One pulse at weight w. The step is taken at v, which is w, or w measured from a reference.
PULSORA_HD float linearPulse(float w, float v, bool up, const LinearResponse &r, float sigma,
                             bool multiplicative, float xi) {
  const float s = r.step(up);
  const float step = pulsora::fma(r.slope(up), v, s);
  const float base = chooseForAll(multiplicative, [&] { return step; }, [&] { return s; });
  return pulsora::fma(base * sigma, xi, w + step);
}

/// n pulses at once, with rho = 1 + k: mean = w + (k v + s)(rho^n - 1)/k;
/// sd = (k v + s) rho^(n-1) sigma sqrt(n), or s sigma sqrt((1 - rho^2n)/(1 - rho^2)). Exact for
/// additive noise. With multiplicative noise the variance is (k v + s)^2 ((rho^2 + k^2 sigma^2)^n -
/// rho^2n)/k^2; sd^2 is its leading term in k sigma, 7e-5 short at the largest skewness admitted.
/// The skewness is about 3 abs(k) sigma (sqrt(n) - 1/sqrt(n)); 3 abs(k) sigma sqrt(n) is the bound
/// used here (no division in the inner loop).
PULSORA_HD Moments linearPulses(float w, float v, PulseSum n, bool up, const LinearResponse &r,
                                float sigma, bool multiplicative) {
  const float s = r.step(up);
  const float k = r.slope(up);
  const float step = pulsora::fma(k, v, s);
  const float scaled = (n.n - 1.0f) * (up ? r.rate_up : r.rate_down);
  const float exponent = scaled * k;                   // (n - 1) log(rho)
  const float growth = scaled * expm1Ratio(exponent);  // (rho^(n-1) - 1)/k
  const float power = pulsora::fma(k, growth, 1.0f);   // rho^(n-1)
  Moments m;
  m.mean = pulsora::fma(step, growth + power, w);
  m.sd = chooseForAll(
      multiplicative, [&] { return step * (power * n.noise); },
      [&] {
        const float halving = up ? r.halving_up : r.halving_down;
        const float squares = pulsora::fma(growth * (power + 1.0f), halving, power * power);
        return s * (sigma * pulsora::sqrtOfNormal(squares));  // squares: sum of rho^2j over j < n
      });
  const float slope =
      chooseForAll(multiplicative, [&] { return 3.0f * k * sigma; }, [] { return 0.0f; });
  // The series above hold for abs((n - 1) log rho) <= 1/4; coarser devices take their pulses one by
  // one.
  m.skewnessSquared = slope * slope * n.n + (pulsora::abs(exponent) <= 0.25f ? 0.0f : 1.0f);
  return m;
}

/// The maps of a pulse at weights that are measured from -reference, for noise_merge = "batch".
PULSORA_HD AffineMaps linearMaps(const LinearResponse &r, float reference) {
  const float up = r.step_up;
  const float down = -r.step_down;
  return {{r.slope_up, pulsora::fma(r.slope_up, reference, up), up, r.rate_up, r.halving_up},
          {r.slope_down, pulsora::fma(r.slope_down, reference, down), down, r.rate_down,
           r.halving_down}};
}

/// The largest change per pulse, in the mean and in units of sigma, of a weight within its bounds:
/// steps are largest at a bound, and n pulses of a growing step change the weight by less than
/// e^(1/4) n of these steps.
PULSORA_HD float linearReach(const LinearResponse &r, float reference) {
  const float high = r.w_max + reference;
  const float low = r.w_min + reference;
  const float up = pulsora::max(pulsora::abs(pulsora::fma(r.slope_up, high, r.step_up)),
                                pulsora::abs(pulsora::fma(r.slope_up, low, r.step_up)));
  const float down = pulsora::max(pulsora::abs(pulsora::fma(r.slope_down, high, -r.step_down)),
                                  pulsora::abs(pulsora::fma(r.slope_down, low, -r.step_down)));
  return 1.3f * pulsora::max(pulsora::max(up, down), r.largestStep());
}

}  // namespace pulsora
