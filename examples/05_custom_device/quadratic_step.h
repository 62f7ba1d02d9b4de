#pragma once

#include <pulsora/devices/range_response.h>

namespace pulsora {
/// A step that falls quadratically on both sides of weight 0; its curvature varies between cells.
struct QuadraticStep {
  static constexpr const char *kName = "QuadraticStep";
  static constexpr const char *kDoc =
      "The step falls quadratically: w += s max(1 - c (2 w/(w_max - w_min))^2, 0)(1 + sigma xi).";

  struct Params : PulsedParams {
    static constexpr const char *kName = "QuadraticStep";
    float curvature = 0.8f;
    float curvature_dtod = 0.1f;

    template <class Visitor>
    static void fields(Visitor &f) {
      PulsedParams::fields(f);
      f(&Params::curvature, "curvature", between(0.0, 1.0), "relative",
        "Share c of the step that is lost half the range away from weight 0.");
      f(&Params::curvature_dtod, "curvature_dtod", nonNegative(), "relative",
        "Device-to-device spread of the curvature.");
    }
  };

  struct Cell : PulsedCell {
    float curvature = 1.0f;  // relative to the mean, so that a nominal cell stores exactly 1
    template <class Visitor>
    PULSORA_HD void members(Visitor &&f) {
      PulsedCell::members(f);
      f("curvature", curvature);
    }
  };
  struct Response : RangeResponse {
    float curvature;
    template <class Visitor>
    PULSORA_HD void members(Visitor &&f) {
      RangeResponse::members(f);
      f(curvature);
    }
  };

  PULSORA_HD static Cell construct(const Params &p, CellDraws &draws, bool bias) {
    const PulsedCell common = sampleCell(p, draws, bias);
    return {common, pulsora::abs(pulsora::fma(p.curvature_dtod, draws.normal(), 1.0f))};
  }
  PULSORA_HD static Response response(const Cell &cell, const Params &p) {
    return {rangeResponse(cell, p), p.curvature * cell.curvature};
  }
  PULSORA_HD static float pulse(float w, bool up, const Response &r, const Params &p, float xi) {
    const float place = 2.0f * w * r.inverse_range;
    const float step =
        r.step(up) * pulsora::max(pulsora::fma(-r.curvature * place, place, 1.0f), 0.0f);
    return pulsora::fma(step, pulsora::fma(p.dw_min_std, xi, 1.0f), w);
  }
  static float granularity(const Params &p) { return stepAtZero<QuadraticStep>(p); }
};

}  // namespace pulsora
