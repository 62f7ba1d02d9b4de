#pragma once

#include "devices/pulsed_model.h"

namespace pulsora {

/// The step falls exponentially with the weight, as fitted to ReRAM and PCM (Gong et al., Nat.
/// Commun. 9:2102, 2018).
struct ExpStep {
  static constexpr const char *kName = "ExpStep";
  static constexpr const char *kDoc =
      "The step falls exponentially with the weight: w += s max(1 - a_up e^(gamma_up z), 0), z = 2 "
      "a w/(w_max - w_min) + "
      "b, upwards; downwards with e^(-gamma_down z). a_up and a_down are AIHWKit's A_up and "
      "A_down.";

  struct Params : PulsedParams {
    static constexpr const char *kName = "ExpStep";
    float a_up = 0.00081f;
    float a_down = 0.36833f;
    float gamma_up = 12.44625f;
    float gamma_down = 12.78785f;
    float a = 0.244f;
    float b = 0.2425f;
    float dw_min_std_add = 0.0f;
    float dw_min_std_slope = 0.0f;

    template <class Visitor>
    static void fields(Visitor &f) {
      using P = Params;
      PulsedParams::fields(f);
      f(&P::a_up, "a_up", anyNumber(), "", "Factor of the up step's exponential (AIHWKit: A_up).");
      f(&P::a_down, "a_down", anyNumber(), "",
        "Factor of the down step's exponential (AIHWKit: A_down).");
      f(&P::gamma_up, "gamma_up", anyNumber(), "", "Rate of the up step's exponential.");
      f(&P::gamma_down, "gamma_down", anyNumber(), "", "Rate of the down step's exponential.");
      f(&P::a, "a", anyNumber(), "", "Scale of the weight, relative to half the cell's range.");
      f(&P::b, "b", anyNumber(), "", "Offset of the scaled weight.");
      f(&P::dw_min_std_add, "dw_min_std_add", nonNegative(), "weight",
        "Part of the cycle noise that does not depend on the step, in units of dw_min_std.");
      f(&P::dw_min_std_slope, "dw_min_std_slope", nonNegative(), "relative",
        "Part of the cycle noise that grows with abs(w), in units of dw_min_std.");
    }

    template <class Check>
    void check(const Check &c) const {
      PulsedParams::check(c);
      constexpr float kLargest = 60.0f;  // e^60 leaves room for the factors around it
      const float z = 2.0f * pulsora::abs(a) + pulsora::abs(b);
      const float rate = pulsora::max(pulsora::abs(gamma_up), pulsora::abs(gamma_down));
      c.require(rate * z <= kLargest, c.path("gamma_up"), " is ", gamma_up, " and ",
                c.path("gamma_down"), " is ", gamma_down, "; times 2 a + b they exceed ", kLargest,
                ", where the step overflows; use smaller ones");
      c.require(granularity(*this) > 0.0f, c.path("a_up"), " is ", a_up, " and ", c.path("a_down"),
                " is ", a_down, "; neither direction then moves a weight at 0; use smaller ones");
    }
  };
  using Cell = PulsedCell;
  struct Response : PulsedResponse {
    float rate_up;  // of the exponent to base 2, per unit of weight
    float rate_down;

    template <class Visitor>
    PULSORA_HD void members(Visitor &&f) {
      PulsedResponse::members(f);
      f(rate_up);
      f(rate_down);
    }
  };

  PULSORA_HD static Cell construct(const Params &p, CellDraws &draws, bool bias) {
    return sampleCell(p, draws, bias);
  }
  PULSORA_HD static Response response(const Cell &cell, const Params &p) {
    Response r;
    static_cast<PulsedResponse &>(r) = pulsedResponse(cell, p);
    const float range = r.w_max - r.w_min;  // 0 for a stuck cell
    const float scale = range > 0.0f ? 2.0f * p.a / range : 0.0f;
    r.rate_up = kLog2E * p.gamma_up * scale;
    r.rate_down = -kLog2E * p.gamma_down * scale;
    return r;
  }

  static constexpr float kLog2E = 0x1.715476p0f;

  /// The exponent to base 2 at weight 0.
  PULSORA_HD static float offset(bool up, const Params &p) {
    return (up ? kLog2E * p.gamma_up : -kLog2E * p.gamma_down) * p.b;
  }
  /// The step relative to the step without the exponential, at an exponent to base 2.
  PULSORA_HD static float shape(float exponent, bool up, const Params &p) {
    return pulsora::max(
        pulsora::fma(up ? -p.a_up : -p.a_down, pulsora::exp2Clamped(exponent), 1.0f), 0.0f);
  }

  PULSORA_HD static float pulse(float w, bool up, const Response &r, const Params &p, float xi) {
    const float exponent = pulsora::fma(up ? r.rate_up : r.rate_down, w, offset(up, p));
    const float step = r.step(up) * shape(exponent, up, p);
    const float spread =
        pulsora::fma(p.dw_min_std_slope, pulsora::abs(w), pulsora::abs(step) + p.dw_min_std_add);
    return pulsora::fma(p.dw_min_std * spread, xi, w + step);
  }

  static float granularity(const Params &p) { return stepAtZero<ExpStep>(p); }
};

}  // namespace pulsora
