#pragma once

#include "noise_models/power_law.h"

namespace pulsora {

/// Programming error and read noise of phase-change memory, for models that share these curves.
struct PcmParams : PowerLawParams {
  FloatList prog_coeff = listOf(0.26348f, 1.9650f, -1.1731f);
  float prog_coeff_g_max_reference = 25.0f;

  template <class Visit>
  PULSORA_HD void usual(const Visit &visit) {
    visit(prog_coeff.count, 3);
  }
  template <class Visitor>
  static void fields(Visitor &f) {
    using P = PcmParams;
    PowerLawParams::fields(f);
    f(&P::prog_coeff, "prog_coeff", between(-kLargestSetting, kLargestSetting), "uS",
      "Coefficients c_0, c_1, ... of the programming error over g = G / g_max: sigma = (c_0 + c_1 "
      "g "
      "+ c_2 g^2 + ...) g_max / prog_coeff_g_max_reference.");
    f(&P::prog_coeff_g_max_reference, "prog_coeff_g_max_reference",
      Range{0.0, kLargestSetting, true, false}, "uS",
      "Largest conductance of the devices from which prog_coeff was measured.");
  }
  template <class Check>
  void check(const Check &c) const {
    PowerLawParams::check(c);
    requireSpread(c, "prog_coeff", [&](float g) { return polynomialOf(prog_coeff, g); });
  }
  PULSORA_HD float programSigma(float target) const {
    return polynomialOf(prog_coeff, relative(target)) * (g_max / prog_coeff_g_max_reference);
  }
};

/// Q of phase-change memory, min(0.0088 g^-0.65, 0.2), for a programmed conductance g relative to
/// g_max. It is 0.2 below g = 0.008, so that a bound of g there does not show.
PULSORA_HD float pcmReadNoise(float g) {
  const float log2 = pulsora::log2OfNormal(pulsora::maxForCompare(g, 1e-3f));
  const float kLog2Of0088 = -6.8282809f;
  return pulsora::minForCompare(pulsora::exp2OfBounded(pulsora::fma(-0.65f, log2, kLog2Of0088)),
                                0.2f);
}

/// Phase-change memory as measured by Nandakumar et al.
struct PCMLike : PowerLawOf<PCMLike> {
  static constexpr const char *kName = "PCMLike";
  static constexpr const char *kDoc =
      "Phase-change memory: Nandakumar et al., ICECS 2019, and Joshi et al., Nat. Commun. 11:2473 "
      "(2020). With g = G / g_max, mean of nu clip(-0.0155 ln g + 0.0244, 0.049, 0.1), standard "
      "deviation clip(-0.0125 ln g - 0.0059, 0.008, 0.045), read noise Q = min(0.0088 / g^0.65, "
      "0.2).";

  struct Params : PcmParams {
    static constexpr const char *kName = "PCMLike";
  };

  PULSORA_HD static float programSigma(float target, const Params &p) {
    return p.programSigma(target);
  }
  PULSORA_HD static float nuMean(float target, const Params &p) {
    return clippedLog(p.relative(target), -0.0155f, 0.0244f, 0.049f, 0.1f);
  }
  PULSORA_HD static float nuStd(float target, const Params &p) {
    return clippedLog(p.relative(target), -0.0125f, -0.0059f, 0.008f, 0.045f);
  }
  PULSORA_HD static float readNoise(float programmed, const Params &p) {
    return pcmReadNoise(p.relative(programmed));
  }
};

}  // namespace pulsora
