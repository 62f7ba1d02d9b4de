#pragma once

#include "devices/range_response.h"

namespace pulsora {

/// The step is a power of the distance to the bound it moves towards.
struct PowStep {
  static constexpr const char *kName = "PowStep";
  static constexpr const char *kDoc =
      "The step is a power of the distance to the bound: w += s ((w_max - w)/(w_max - "
      "w_min))^gamma (1 + sigma xi) "
      "upwards.";

  struct Params : PulsedParams {
    static constexpr const char *kName = "PowStep";
    float pow_gamma = 1.0f;
    float pow_gamma_dtod = 0.1f;
    float pow_up_down = 0.0f;
    float pow_up_down_dtod = 0.0f;

    template <class Visitor>
    static void fields(Visitor &f) {
      using P = Params;
      PulsedParams::fields(f);
      f(&P::pow_gamma, "pow_gamma", nonNegative(), "", "Mean exponent.");
      f(&P::pow_gamma_dtod, "pow_gamma_dtod", nonNegative(), "relative",
        "Device-to-device spread of the exponent.");
      f(&P::pow_up_down, "pow_up_down", anyNumber(), "relative",
        "Asymmetry of the exponents: a positive value lowers the down step's exponent, a "
        "negative value the up step's.");
      f(&P::pow_up_down_dtod, "pow_up_down_dtod", nonNegative(), "relative",
        "Device-to-device spread of the asymmetry of the exponents.");
    }
  };

  struct Cell : PulsedCell {
    float exponent_up = 1.0f;  // relative to a cell without spread
    float exponent_down = 1.0f;

    template <class Visitor>
    PULSORA_HD void members(Visitor &&f) {
      PulsedCell::members(f);
      f("exponent_up", exponent_up);
      f("exponent_down", exponent_down);
    }
  };

  struct Response : RangeResponse {
    float exponent_up;
    float exponent_down;

    template <class Visitor>
    PULSORA_HD void members(Visitor &&f) {
      RangeResponse::members(f);
      f(exponent_up);
      f(exponent_down);
    }
  };

  PULSORA_HD static Cell construct(const Params &p, CellDraws &draws, bool bias) {
    Cell cell{sampleCell(p, draws, bias)};
    const float gain = pulsora::fma(p.pow_gamma_dtod, draws.normal(), 1.0f);
    sampleAsymmetry(gain, p.pow_up_down, p.pow_up_down_dtod, draws, cell.exponent_up,
                    cell.exponent_down);
    cell.exponent_up = cell.exponent_up / nominalUp(p.pow_up_down);
    cell.exponent_down = cell.exponent_down / nominalDown(p.pow_up_down);
    return cell;
  }

  PULSORA_HD static Response response(const Cell &cell, const Params &p) {
    Response r;
    static_cast<RangeResponse &>(r) = rangeResponse(cell, p);
    // A negative exponent would be a step without limit at the bound.
    r.exponent_up = pulsora::abs(p.pow_gamma * nominalUp(p.pow_up_down) * cell.exponent_up);
    r.exponent_down = pulsora::abs(p.pow_gamma * nominalDown(p.pow_up_down) * cell.exponent_down);
    return r;
  }

  PULSORA_HD static float pulse(float w, bool up, const Response &r, const Params &p, float xi) {
    constexpr float kSmallest =
        0x1p-126f;  // keeps the logarithm finite; the bounds catch a step from there
    const float distance =
        pulsora::max((up ? r.w_max - w : w - r.w_min) * r.inverse_range, kSmallest);
    const float exponent = up ? r.exponent_up : r.exponent_down;
    const float step = r.step(up) * pulsora::exp(exponent * pulsora::log(distance));
    return pulsora::fma(step, pulsora::fma(p.dw_min_std, xi, 1.0f), w);
  }

  static float granularity(const Params &p) { return stepAtZero<PowStep>(p); }
};

}  // namespace pulsora
