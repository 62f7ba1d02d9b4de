#pragma once

#include <pulsora/devices/constant_step.h>

namespace pulsora {

/// ConstantStep, with pulses of twice the change.
struct DoubledStep : ConstantStep {
  static constexpr const char *kName = "DoubledStep";
  static constexpr const char *kDoc = "Every pulse changes the weight by 2 dw_min.";

  struct Params : ConstantStep::Params {
    static constexpr const char *kName = "DoubledStep";
  };

  PULSORA_HD static float pulse(float w, bool up, const Response &r, const Params &p, float xi) {
    return ConstantStep::pulse(w, up, twice(r), p, xi);
  }
  PULSORA_HD static Moments pulses(float w, PulseSum n, bool up, const Response &r,
                                   const Params &p) {
    return ConstantStep::pulses(w, n, up, twice(r), p);
  }
  PULSORA_HD static float reach(const Response &r, const Params &p) {
    return ConstantStep::reach(twice(r), p);
  }
  PULSORA_HD static Moments mixedPulses(float w, float up, float down, const Response &r,
                                        const Params &p) {
    return ConstantStep::mixedPulses(w, up, down, twice(r), p);
  }

 private:
  PULSORA_HD static Response twice(Response r) {
    r.step_up *= 2.0f;
    r.step_down *= 2.0f;
    return r;
  }
};

}  // namespace pulsora
