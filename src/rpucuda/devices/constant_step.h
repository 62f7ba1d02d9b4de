#pragma once

#include "devices/pulsed_model.h"

namespace pulsora {

/// Every pulse changes the weight by the same amount, whatever the weight: w += s (1 + sigma xi).
struct ConstantStep {
  static constexpr const char *kName = "ConstantStep";
  static constexpr const char *kDoc =
      "Every pulse changes the weight by the same mean amount, up to hard bounds; the reference "
      "device of the field.";

  struct Params : PulsedParams {
    static constexpr const char *kName = "ConstantStep";
  };
  using Cell = PulsedCell;
  using Response = PulsedResponse;

  PULSORA_HD static Cell construct(const Params &p, CellDraws &draws, bool bias) {
    return sampleCell(p, draws, bias);
  }
  PULSORA_HD static Response response(const Cell &cell, const Params &p) {
    return pulsedResponse(cell, p);
  }

  PULSORA_HD static float pulse(float w, bool up, const Response &r, const Params &p, float xi) {
    const float s = r.step(up);
    return pulsora::fma(s * p.dw_min_std, xi, w + s);
  }

  /// Exact: the sum of n independent normals; n = 0 leaves the weight unchanged, to the bit.
  PULSORA_HD static Moments pulses(float w, PulseSum n, bool up, const Response &r,
                                   const Params &) {
    const float s = r.step(up);
    return {pulsora::fma(n.n, s, w), s * n.noise, 0.0f};
  }
  static constexpr bool kNoPulseIsExact = true;
  PULSORA_HD static float reach(const Response &r, const Params &) { return r.largestStep(); }
  /// There is none: steps are equal everywhere or nowhere.
  PULSORA_HD static float symmetricPoint(const Response &) { return 0.0f; }

  /// Exact for pulses up and down in any order.
  PULSORA_HD static Moments mixedPulses(float w, float up, float down, const Response &r,
                                        const Params &p) {
    const float mean = pulsora::fma(-r.step_down, down, pulsora::fma(r.step_up, up, w));
    const float variance =
        pulsora::fma(r.step_up * r.step_up, up, r.step_down * r.step_down * down);
    const float root = pulsora::sqrtOfNormal(pulsora::maxForCompare(variance, 0x1p-100f));
    return {mean, variance > 0.0f ? p.dw_min_std * root : 0.0f, 0.0f};
  }

  static float granularity(const Params &p) { return stepAtZero<ConstantStep>(p); }
};

}  // namespace pulsora
