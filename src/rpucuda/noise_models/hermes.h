#pragma once

#include "noise_models/power_law.h"

namespace pulsora {

/// Phase-change memory of the Hermes chip.
struct Hermes : PowerLawOf<Hermes> {
  static constexpr const char *kName = "Hermes";
  static constexpr const char *kDoc =
      "Phase-change memory of the Hermes chip (Le Gallo et al., Nat. Electron. 6:680, 2023), with "
      "one or two devices for each conductance; curves of AIHWKit's model of that name. With g = "
      "G / g_max, of two devices: sigma = (0.166 + 4.718 g - 8.481 g^2 + 4.690 g^3) g_max / 20.7 "
      "uS; mean of nu clip(-0.0387 ln g - 0.0182, 0.072, 0.13) below g = 0.0945, then 0.0736 - "
      "0.0126 g - 0.0436 g^2; its standard deviation clip(-0.0117 ln g - 0.0057, 0.0091, 0.04) "
      "below 0.3055, then 0.0073 + 0.0093 g - 0.0118 g^2; read noise Q = clip(-0.0117 ln g - "
      "0.0069, 0.015, 0.04) below 0.16, then 0.0123 + 0.0211 g - 0.0280 g^2 + 0.0069 g^3. Of one: "
      "sigma = (0.158 + 2.324 g - 2.163 g^2 + 0.688 g^3) g_max / 10.35; the same mean; "
      "clip(-0.0120 ln g - 0.0023, 0.0124, 0.04) below 0.3039, then 0.0104 + 0.0116 g - 0.0165 "
      "g^2; clip(-0.0078 ln g + 0.0038, 0.0179, 0.04) below 0.1591, then 0.0088 + 0.0768 g - "
      "0.1352 g^2 + 0.0664 g^3.";

  /// The curves of one arrangement of devices.
  struct Curves {
    float sigma[4];       ///< programming error over g: coefficients of a polynomial, in uS
    float gMaxReference;  ///< uS
    float stdSplit;       ///< the spread of nu is logarithmic in g below, a polynomial from here on
    float stdLog[4];      ///< slope, offset, least and largest value
    float stdPoly[3];
    float readSplit;  ///< the same for the read noise
    float readLog[4];
    float readPoly[4];
  };

  struct Params : PowerLawParams {
    static constexpr const char *kName = "Hermes";

    int num_devices = 2;

    Params() {
      g_max = 20.7f;
      t_0 = 300.0f;
      t_read = 512e-9f;
    }
    template <class Visit>
    PULSORA_HD void usual(const Visit &visit) {
      visit(num_devices, 2);
    }
    template <class Visitor>
    static void fields(Visitor &f) {
      using P = Params;
      PowerLawParams::fields(f);
      f(&P::num_devices, "num_devices", between(1, 2), "",
        "Devices of one conductance. The published numbers of one device belong to g_max = 10.35 "
        "and t_0 = 200, of two to g_max = 20.7 and t_0 = 300.");
    }
    template <class Check>
    void check(const Check &c) const {
      PowerLawParams::check(c);
    }
  };

  PULSORA_HD static Curves curvesOf(const Params &p) {
    if (p.num_devices == 1) {
      return {{0.15781817f, 2.32443916f, -2.16310839f, 0.68841818f},
              10.35f,
              0.3039f,
              {-0.0120f, -0.0023f, 0.0124f, 0.04f},
              {0.0104f, 0.0116f, -0.0165f},
              0.1591f,
              {-0.0078f, 0.0038f, 0.0179f, 0.04f},
              {0.0088f, 0.0768f, -0.1352f, 0.0664f}};
    }
    return {{0.16603222f, 4.71806468f, -8.48101252f, 4.68961419f},
            20.7f,
            0.3055f,
            {-0.0117f, -0.0057f, 0.0091f, 0.04f},
            {0.0073f, 0.0093f, -0.0118f},
            0.16f,
            {-0.0117f, -0.0069f, 0.015f, 0.04f},
            {0.0123f, 0.0211f, -0.0280f, 0.0069f}};
  }
  /// clippedLog() with these four numbers.
  PULSORA_HD static float logCurve(float g, const float (&c)[4]) {
    return clippedLog(g, c[0], c[1], c[2], c[3]);
  }

  PULSORA_HD static float programSigma(float target, const Params &p) {
    const Curves c = curvesOf(p);
    const float g = p.relative(target);
    return pulsora::polynomial(g, c.sigma[0], c.sigma[1], c.sigma[2], c.sigma[3]) *
           (p.g_max / c.gMaxReference);
  }
  PULSORA_HD static float nuMean(float target, const Params &p) {
    const float g = p.relative(target);
    const float kLog[4] = {-0.0387f, -0.0182f, 0.072f, 0.13f};
    return pulsora::select(g < 0.0945f, logCurve(g, kLog),
                           pulsora::polynomial(g, 0.0736f, -0.0126f, -0.0436f));
  }
  PULSORA_HD static float nuStd(float target, const Params &p) {
    const Curves c = curvesOf(p);
    const float g = p.relative(target);
    return pulsora::select(g < c.stdSplit, logCurve(g, c.stdLog),
                           pulsora::polynomial(g, c.stdPoly[0], c.stdPoly[1], c.stdPoly[2]));
  }
  PULSORA_HD static float readNoise(float programmed, const Params &p) {
    const Curves c = curvesOf(p);
    const float g = p.relative(programmed);
    return pulsora::select(
        g < c.readSplit, logCurve(g, c.readLog),
        pulsora::polynomial(g, c.readPoly[0], c.readPoly[1], c.readPoly[2], c.readPoly[3]));
  }
};

}  // namespace pulsora
