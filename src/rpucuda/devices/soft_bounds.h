#pragma once

#include "devices/linear_response.h"

namespace pulsora {

/// The step shrinks linearly with the weight and vanishes at the bound it moves towards.
struct SoftBounds {
  static constexpr const char *kName = "SoftBounds";
  static constexpr const char *kDoc =
      "The step shrinks linearly with the weight and vanishes at the bound: w += s (1 - w/w_max)(1 "
      "+ sigma xi) upwards.";

  struct Params : PulsedParams {
    static constexpr const char *kName = "SoftBounds";
    bool mult_noise = true;

    template <class Visitor>
    static void fields(Visitor &f) {
      PulsedParams::fields(f);
      f(&Params::mult_noise, "mult_noise", anyNumber(), "",
        "Whether cycle noise scales with the whole step or only with its constant part.");
    }
  };
  using Cell = PulsedCell;
  using Response = LinearResponse;

  PULSORA_HD static Cell construct(const Params &p, CellDraws &draws, bool bias) {
    return sampleCell(p, draws, bias);
  }

  PULSORA_HD static Response response(const Cell &cell, const Params &p) {
    Response r;
    static_cast<PulsedResponse &>(r) = pulsedResponse(cell, p);
    softSlopes(r);
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

  static float granularity(const Params &p) { return stepAtZero<SoftBounds>(p); }
};

}  // namespace pulsora
