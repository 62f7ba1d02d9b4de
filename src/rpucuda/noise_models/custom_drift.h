#pragma once

#include "noise_models/pcm_like.h"

namespace pulsora {

/// Phase-change memory with a drift of one's own.
struct CustomDrift : PowerLawOf<CustomDrift> {
  static constexpr const char *kName = "CustomDrift";
  static constexpr const char *kDoc =
      "Programming error and read noise of PCMLike, and a drift exponent whose mean and standard "
      "deviation are tables over the conductance (AIHWKit's CustomDriftPCMLike).";

  struct Params : PcmParams {
    static constexpr const char *kName = "CustomDrift";

    FloatList g = listOf(0.0f, 1.0f);
    FloatList nu_mean = listOf(0.05f, 0.05f);
    FloatList nu_std = listOf(0.01f, 0.01f);

    template <class Visit>
    PULSORA_HD void usual(const Visit &visit) {
      PcmParams::usual(visit);
      visit(g.count, 2);
    }
    template <class Visitor>
    static void fields(Visitor &f) {
      using P = Params;
      PcmParams::fields(f);
      f(&P::g, "g", between(0.0, 1.0), "g_max", "Nodes of both tables, ascending.");
      f(&P::nu_mean, "nu_mean", between(-kLargestSetting, kLargestSetting), "",
        "Mean of the drift exponent at each node.");
      f(&P::nu_std, "nu_std", between(0.0, kLargestSetting), "",
        "Standard deviation of the drift exponent at each node.");
    }
    template <class Check>
    void check(const Check &c) const {
      PcmParams::check(c);
      requireNodes(c, "g", g);
      requireEntries(c, "nu_mean", nu_mean, g.count);
      requireEntries(c, "nu_std", nu_std, g.count);
    }
  };

  PULSORA_HD static float programSigma(float target, const Params &p) {
    return p.programSigma(target);
  }
  PULSORA_HD static float nuMean(float target, const Params &p) {
    return valueAt(p.nu_mean, placeOf(p.g, p.relative(target)));
  }
  PULSORA_HD static float nuStd(float target, const Params &p) {
    return valueAt(p.nu_std, placeOf(p.g, p.relative(target)));
  }
  PULSORA_HD static float readNoise(float programmed, const Params &p) {
    return pcmReadNoise(p.relative(programmed));
  }
};

}  // namespace pulsora
