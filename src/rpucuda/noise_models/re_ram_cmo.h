#pragma once

#include <cmath>
#include <limits>

#include "noise_models/shift.h"

namespace pulsora {

/// Analog resistive memory with a conductive metal oxide layer.
struct ReRamCMO {
  static constexpr const char *kName = "ReRamCMO";
  static constexpr const char *kDoc =
      "Resistive memory with a conductive metal oxide layer (Falcone et al., Adv. Funct. Mater., "
      "2025), 9 to 88.2 uS, one device for each weight. sigma = a + b G; the shift has mean "
      "-0.089 ln t and standard deviation 0.042 ln t + 0.412 uS; read noise 0.0277 log10(G) "
      "sqrt(ln((t + 1e-6) / 2e-6)).";

  struct Params : ShiftParams {
    static constexpr const char *kName = "ReRamCMO";

    float acceptance_range = 0.2f;

    Params() {
      g_max = 88.2f;
      g_min = 9.0f;
    }
    template <class Visitor>
    static void fields(Visitor &f) {
      ShiftParams::fields(f);
      f(&Params::acceptance_range, "acceptance_range", between(0.2, 2.0), "%",
        "Range around the target within which programming stops: 0.2 or 2.");
    }
    template <class Check>
    void check(const Check &c) const {
      ShiftParams::check(c);
      c.require(acceptance_range == 0.2f || acceptance_range == 2.0f, c.path("acceptance_range"),
                " is ", acceptance_range, ", for which there are no numbers; choose 0.2 or 2");
    }
  };
  /// The logarithms of a time.
  struct Time {
    float logTime = 0.0f;     ///< ln t
    float readGrowth = 0.0f;  ///< sqrt(ln((t + t_r) / 2 t_r)), t_r = 1e-6 s
    bool begun = false;
  };

  static double lastTime(const Params &) { return std::numeric_limits<double>::infinity(); }
  static double readDuration(const Params &) { return 1e-6; }
  static double ageOf(double t, const Params &) { return t; }
  static Time timeOf(double t, const Params &p) {
    if (!(t > 0.0)) return {};
    const double read = readDuration(p);
    const double growth = std::log((t + read) / (2.0 * read));
    return {static_cast<float>(std::log(t)),
            static_cast<float>(std::sqrt(growth > 0.0 ? growth : 0.0)), true};
  }
  PULSORA_HD static bool drifts(const Time &time) { return time.begun; }
  PULSORA_HD static float programmed(float target, float xi, const Params &p) {
    const bool narrow = p.acceptance_range < 1.0f;
    const float sigma = narrow ? pulsora::fma(0.00106879f, target, 0.00081107f)
                               : pulsora::fma(0.01129027418f, target, 0.0112185391f);
    return pulsora::fma(p.prog_noise_scale * sigma, xi, target);
  }
  PULSORA_HD static float drifted(float, float programmed, const DriftDraws &xi, const Time &time,
                                  const Params &p) {
    const float fresh = pulsora::sqrt(pulsora::fma(-p.persistence, p.persistence, 1.0f));
    const float zeta = pulsora::fma(p.persistence, xi.kept, fresh * xi.anew);
    const float spread = pulsora::abs(pulsora::fma(0.04201137f, time.logTime, 0.41183342f));
    const float shift = pulsora::fma(spread, zeta, -0.08900206f * time.logTime);
    return pulsora::select(time.begun, pulsora::fma(p.drift_scale, shift, programmed), programmed);
  }
  PULSORA_HD static float readSigma(float drifted, float, const Time &time, const Params &p) {
    const float log10 = 0.43429448f * pulsora::log(pulsora::max(drifted, 1.0f));
    return p.read_noise_scale * 0.0277316483f * log10 * time.readGrowth;
  }
  PULSORA_HD static float limited(float g, const Time &time, const Params &p) {
    return pulsora::select(time.begun, pulsora::clamp(g, p.g_min, p.g_max), g);
  }
};

}  // namespace pulsora
