#pragma once

#include "noise_models/shift.h"

namespace pulsora {

/// Resistive memory of the NeuRRAM chip.
struct ReRamWan2022 : ShiftOf<ReRamWan2022> {
  static constexpr const char *kName = "ReRamWan2022";
  static constexpr const char *kDoc =
      "Resistive memory of the NeuRRAM chip (Wan et al., Nature 608:504, 2022): the relaxation of "
      "its conductance 1 s, one day and two days after programming. Standard deviations were "
      "measured at 40 uS and scale with g_max: with g = G / g_max, g_max / 40 times 0.348 + 16.030 "
      "g - 43.853 g^2 + 45.393 g^3 - 16.815 g^4, then 0.701 + 22.086 g - 50.773 g^2 + 47.095 g^3 - "
      "16.458 g^4, then 0.782 + 20.274 g - 43.507 g^2 + 37.062 g^3 - 11.934 g^4 uS.";

  struct Params : ShiftParams {
    static constexpr const char *kName = "ReRamWan2022";

    bool extrapolate = false;

    template <class Visitor>
    static void fields(Visitor &f) {
      ShiftParams::fields(f);
      f(&Params::extrapolate, "extrapolate", anyNumber(), "",
        "Whether times beyond two days are allowed; the growth over the second day then goes on in "
        "the logarithm of time.");
    }
    template <class Check>
    void check(const Check &c) const {
      ShiftParams::check(c);
    }
  };

  static FloatList times(const Params &) { return listOf(1.0f, 86400.0f, 172800.0f); }
  static bool extrapolates(const Params &p) { return p.extrapolate; }
  PULSORA_HD static float sigma(float target, int time, const Params &p) {
    const float g = p.relative(target);
    const float second = pulsora::polynomial(g, 0.348f, 16.030f, -43.853f, 45.393f, -16.815f);
    const float day = pulsora::polynomial(g, 0.701f, 22.086f, -50.773f, 47.095f, -16.458f);
    const float twoDays = pulsora::polynomial(g, 0.782f, 20.274f, -43.507f, 37.062f, -11.934f);
    const float kReference = 40.0f;
    return (time == 0 ? second : (time == 1 ? day : twoDays)) * (p.g_max / kReference);
  }
  PULSORA_HD static float shift(float, int, const Params &) { return 0.0f; }
};

}  // namespace pulsora
