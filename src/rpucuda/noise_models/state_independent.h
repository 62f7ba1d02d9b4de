#pragma once

#include "noise_models/power_law.h"

namespace pulsora {

/// A power law whose noise does not depend on the conductance.
struct StateIndependent : PowerLawOf<StateIndependent> {
  static constexpr const char *kName = "StateIndependent";
  static constexpr const char *kDoc =
      "A power law with one drift exponent for all conductances, nu = |drift_nu_mean + "
      "drift_nu_std "
      "xi|, a programming error in uS, and read noise Q = 1 / g_max (AIHWKit's model of that "
      "name).";

  struct Params : PowerLawParams {
    static constexpr const char *kName = "StateIndependent";

    FloatList prog_coeff = listOf(0.2f);
    float drift_nu_mean = 0.1f;
    float drift_nu_std = 0.05f;

    template <class Visit>
    PULSORA_HD void usual(const Visit &visit) {
      visit(prog_coeff.count, 1);
    }
    template <class Visitor>
    static void fields(Visitor &f) {
      using P = Params;
      PowerLawParams::fields(f);
      f(&P::prog_coeff, "prog_coeff", between(-kLargestSetting, kLargestSetting), "uS",
        "Coefficients of the programming error over g = G / g_max: sigma = c_0 + c_1 g + ...");
      f(&P::drift_nu_mean, "drift_nu_mean", between(-kLargestSetting, kLargestSetting), "",
        "Mean of the drift exponent, before its absolute value is taken.");
      f(&P::drift_nu_std, "drift_nu_std", between(0.0, kLargestSetting), "",
        "Standard deviation of the drift exponent, before its absolute value is taken.");
    }
    template <class Check>
    void check(const Check &c) const {
      PowerLawParams::check(c);
      requireSpread(c, "prog_coeff", [&](float g) { return polynomialOf(prog_coeff, g); });
    }
  };

  PULSORA_HD static float programSigma(float target, const Params &p) {
    return polynomialOf(p.prog_coeff, p.relative(target));
  }
  PULSORA_HD static float nuMean(float, const Params &p) { return p.drift_nu_mean; }
  PULSORA_HD static float nuStd(float, const Params &p) { return p.drift_nu_std; }
  PULSORA_HD static float readNoise(float, const Params &p) { return 1.0f / p.g_max; }
};

}  // namespace pulsora
