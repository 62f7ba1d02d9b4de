#pragma once

#include "devices/pulsed_model.h"

namespace RPU {

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

  RPU_HD static Cell construct(const Params &p, CellDraws &draws, bool bias) {
    return sampleCell(p, draws, bias);
  }
  RPU_HD static Response response(const Cell &cell, const Params &p) {
    return pulsedResponse(cell, p);
  }

  RPU_HD static float pulse(float w, bool up, const Response &r, const Params &p, float xi) {
    return RPU::fma(r.step(up), RPU::fma(p.dw_min_std, xi, 1.0f), w);
  }

  /// Exact: the sum of n independent normals.
  RPU_HD static Moments pulses(float w, float n, bool up, const Response &r, const Params &p) {
    const float s = r.step(up);
    return {RPU::fma(n, s, w), s * p.dw_min_std * RPU::sqrtOfNormal(n), 0.0f};
  }

  static float granularity(const Params &p) { return p.dw_min; }
};

}  // namespace RPU
