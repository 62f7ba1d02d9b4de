#pragma once

#include "devices/linear_response.h"

namespace pulsora {

/// The step changes linearly with the weight, by a share gamma of itself from weight 0 to the
/// bound.
struct LinearStep {
  static constexpr const char *kName = "LinearStep";
  static constexpr const char *kDoc =
      "The step changes linearly with the weight: w += s (1 - gamma_up w/w_max)(1 + sigma xi) "
      "upwards.";

  struct Params : PulsedParams {
    static constexpr const char *kName = "LinearStep";
    float gamma_up = 0.0f;
    float gamma_down = 0.0f;
    float gamma_up_dtod = 0.05f;
    float gamma_down_dtod = 0.05f;
    bool allow_increasing = false;
    bool mean_bound_reference = true;
    bool mult_noise = true;
    bool reverse_up = false;
    bool reverse_down = false;
    float reverse_offset = 0.01f;

    template <class Visitor>
    static void fields(Visitor &f) {
      using P = Params;
      PulsedParams::fields(f);
      f(&P::gamma_up, "gamma_up", between(-1.0, 1.0), "relative",
        "Share by which the up step is smaller at the upper bound than at weight 0.");
      f(&P::gamma_down, "gamma_down", between(-1.0, 1.0), "relative",
        "Share by which the down step is smaller at the lower bound than at weight 0.");
      f(&P::gamma_up_dtod, "gamma_up_dtod", nonNegative(), "absolute",
        "Device-to-device spread of gamma_up.");
      f(&P::gamma_down_dtod, "gamma_down_dtod", nonNegative(), "absolute",
        "Device-to-device spread of gamma_down.");
      f(&P::allow_increasing, "allow_increasing", anyNumber(), "",
        "Admit negative gammas, whose steps grow towards the bound; otherwise a cell takes the "
        "absolute value.");
      f(&P::mean_bound_reference, "mean_bound_reference", anyNumber(), "",
        "Measure gamma at the mean bound (w_max or w_min) instead of the cell's own bound.");
      f(&P::mult_noise, "mult_noise", anyNumber(), "",
        "Whether cycle noise scales with the whole step or only with its constant part.");
      f(&P::reverse_up, "reverse_up", anyNumber(), "",
        "Measure gamma_up at the lower bound: the up step grows with the weight.");
      f(&P::reverse_down, "reverse_down", anyNumber(), "",
        "Measure gamma_down at the upper bound: the down step grows as the weight falls.");
      f(&P::reverse_offset, "reverse_offset", nonNegative(), "weight",
        "Distance beyond the bound at which a reversed gamma is measured.");
    }

    template <class Check>
    void check(const Check &c) const {
      PulsedParams::check(c);
      c.require(allow_increasing || gamma_up >= 0.0f, c.path("gamma_up"), " is ", gamma_up,
                "; a negative one needs allow_increasing=True");
      c.require(allow_increasing || gamma_down >= 0.0f, c.path("gamma_down"), " is ", gamma_down,
                "; a negative one needs allow_increasing=True");
      c.require(mult_noise || !(reverse_up || reverse_down), c.path("mult_noise"),
                " is False with reverse_up or reverse_down, ",
                "which are defined for multiplicative noise alone; set mult_noise=True");
    }
  };

  struct Cell : PulsedCell {
    float gamma_up = 0.0f;  // deviation from the mean in units of gamma_up_dtod
    float gamma_down = 0.0f;

    template <class Visitor>
    PULSORA_HD void members(Visitor &&f) {
      PulsedCell::members(f);
      f("gamma_up", gamma_up);
      f("gamma_down", gamma_down);
    }
  };
  using Response = LinearResponse;

  PULSORA_HD static Cell construct(const Params &p, CellDraws &draws, bool bias) {
    Cell cell{sampleCell(p, draws, bias)};
    cell.gamma_up = draws.deviation(p.gamma_up_dtod);
    cell.gamma_down = draws.deviation(p.gamma_down_dtod);
    return cell;
  }

  PULSORA_HD static Response response(const Cell &cell, const Params &p) {
    Response r;
    static_cast<PulsedResponse &>(r) = pulsedResponse(cell, p);
    const float wMax = p.mean_bound_reference ? p.w_max : r.w_max;
    const float wMin = p.mean_bound_reference ? p.w_min : r.w_min;
    const float atUp = p.reverse_up ? wMin - p.reverse_offset : wMax;
    const float atDown = p.reverse_down ? wMax + p.reverse_offset : wMin;
    const float up = pulsora::fma(p.gamma_up_dtod, cell.gamma_up, p.gamma_up);
    const float down = pulsora::fma(p.gamma_down_dtod, cell.gamma_down, p.gamma_down);
    const float gammaUp = p.allow_increasing ? up : pulsora::abs(up);
    const float gammaDown = p.allow_increasing ? down : pulsora::abs(down);
    r.slope_up = atUp != 0.0f ? -gammaUp * r.step_up / atUp : 0.0f;
    r.slope_down = atDown != 0.0f ? gammaDown * r.step_down / atDown : 0.0f;
    finishLinearResponse(r, p.mult_noise);
    return r;
  }

  PULSORA_HD static float pulse(float w, bool up, const Response &r, const Params &p, float xi) {
    return linearPulse(w, w, up, r, p.dw_min_std, p.mult_noise, xi);
  }
  PULSORA_HD static Moments pulses(float w, PulseSum n, bool up, const Response &r,
                                   const Params &p) {
    return linearPulses(w, w, n, up, r, p.dw_min_std, p.mult_noise);
  }
  PULSORA_HD static AffineMaps affineMaps(const Response &r, const Params &) {
    return linearMaps(r, 0.0f);
  }
  PULSORA_HD static float reach(const Response &r, const Params &) { return linearReach(r, 0.0f); }
  PULSORA_HD static float symmetricPoint(const Response &r) { return r.symmetricPoint(); }

  static float granularity(const Params &p) { return stepAtZero<LinearStep>(p); }
};

}  // namespace pulsora
