#pragma once

#include "devices/linear_response.h"

namespace pulsora {

/// SoftBounds read against a reference device: the weight is w = v - reference, and v has soft
/// bounds.
struct SoftBoundsReference {
  static constexpr const char *kName = "SoftBoundsReference";
  static constexpr const char *kDoc =
      "SoftBounds read against a reference: v = w + reference has soft bounds; the reference may "
      "be the cell's own "
      "symmetric point, which then lies at weight 0.";

  struct Params : PulsedParams {
    static constexpr const char *kName = "SoftBoundsReference";
    float slope_up_dtod = 0.0f;
    float slope_down_dtod = 0.0f;
    float reference_mean = 0.0f;
    float reference_std = 0.0f;
    bool subtract_symmetry_point = false;
    bool mult_noise = false;

    template <class Visitor>
    static void fields(Visitor &f) {
      using P = Params;
      PulsedParams::fields(f);
      f(&P::slope_up_dtod, "slope_up_dtod", nonNegative(), "relative",
        "Device-to-device spread of the up step's slope, beside the spread of its bound.");
      f(&P::slope_down_dtod, "slope_down_dtod", nonNegative(), "relative",
        "Device-to-device spread of the down step's slope, beside the spread of its bound.");
      f(&P::reference_mean, "reference_mean", anyNumber(), "weight", "Mean reference.");
      f(&P::reference_std, "reference_std", nonNegative(), "weight",
        "Device-to-device spread of the reference.");
      f(&P::subtract_symmetry_point, "subtract_symmetry_point", anyNumber(), "",
        "Add each cell's symmetric point, where up and down steps are equal, to its reference and "
        "its reset value.");
      f(&P::mult_noise, "mult_noise", anyNumber(), "",
        "Whether cycle noise scales with the whole step or only with its constant part.");
    }
  };

  struct Cell : PulsedCell {
    float slope_up = 1.0f;  // relative to the slope that the bound implies
    float slope_down = 1.0f;
    float reference = 0.0f;  // deviation from the mean in units of reference_std

    template <class Visitor>
    PULSORA_HD void members(Visitor &&f) {
      PulsedCell::members(f);
      f("slope_up", slope_up);
      f("slope_down", slope_down);
      f("reference", reference);
    }
  };

  /// Steps and slopes refer to v; bounds refer to w.
  struct Response : LinearResponse {
    float reference;

    template <class Visitor>
    PULSORA_HD void members(Visitor &&f) {
      LinearResponse::members(f);
      f(reference);
    }
    PULSORA_HD float resetShift(const Params &p) const {
      return p.subtract_symmetry_point ? symmetricPoint() : 0.0f;
    }
  };

  PULSORA_HD static Cell construct(const Params &p, CellDraws &draws, bool bias) {
    Cell cell{sampleCell(p, draws, bias)};
    cell.slope_up = pulsora::abs(pulsora::fma(p.slope_up_dtod, draws.normal(), 1.0f));
    cell.slope_down = pulsora::abs(pulsora::fma(p.slope_down_dtod, draws.normal(), 1.0f));
    cell.reference = draws.deviation(p.reference_std);
    return cell;
  }

  PULSORA_HD static Response response(const Cell &cell, const Params &p) {
    Response r;
    static_cast<PulsedResponse &>(r) = pulsedResponse(cell, p);
    softSlopes(r, cell.slope_up, cell.slope_down);
    finishLinearResponse(r, p.mult_noise);
    r.reference = pulsora::fma(p.reference_std, cell.reference, p.reference_mean) + r.resetShift(p);
    r.w_max = (r.w_max - r.reference) + 0.0f;
    r.w_min = (r.w_min - r.reference) + 0.0f;
    return r;
  }

  PULSORA_HD static float pulse(float w, bool up, const Response &r, const Params &p, float xi) {
    return linearPulse(w, w + r.reference, up, r, p.dw_min_std, p.mult_noise, xi);
  }
  PULSORA_HD static Moments pulses(float w, PulseSum n, bool up, const Response &r,
                                   const Params &p) {
    return linearPulses(w, w + r.reference, n, up, r, p.dw_min_std, p.mult_noise);
  }
  PULSORA_HD static AffineMaps affineMaps(const Response &r, const Params &) {
    return linearMaps(r, r.reference);
  }
  PULSORA_HD static float reach(const Response &r, const Params &) {
    return linearReach(r, r.reference);
  }
  PULSORA_HD static float symmetricPoint(const Response &r) {
    return r.symmetricPoint() - r.reference;
  }

  /// No step is left at weight 0 where the symmetric point, subtracted, is a bound.
  static float granularity(const Params &p) {
    const float step = stepAtZero<SoftBoundsReference>(p);
    return step > 0.0f ? step : p.dw_min;
  }
};

}  // namespace pulsora
