#pragma once

#include "devices/pulsed_model.h"

namespace pulsora {

/// PulsedResponse with the inverse distance of the bounds, for steps that depend on the place
/// between them.
struct RangeResponse : PulsedResponse {
  float inverse_range;  // 1/(w_max - w_min); 0 for a stuck cell

  template <class Visitor>
  PULSORA_HD void members(Visitor &&f) {
    PulsedResponse::members(f);
    f(inverse_range);
  }
};

PULSORA_HD RangeResponse rangeResponse(const PulsedCell &cell, const PulsedParams &p) {
  RangeResponse r;
  static_cast<PulsedResponse &>(r) = pulsedResponse(cell, p);
  const float range = r.w_max - r.w_min;
  r.inverse_range = range > 0.0f ? 1.0f / range : 0.0f;
  return r;
}

}  // namespace pulsora
