#pragma once

#include <cmath>
#include <limits>

#include "noise_models/noise_model.h"

namespace pulsora {

/// Parameters of models that drift by a power law.
struct PowerLawParams : NoiseParams {
  float t_0 = 20.0f;
  float t_read = 250e-9f;

  template <class Visitor>
  static void fields(Visitor &f) {
    using P = PowerLawParams;
    NoiseParams::fields(f);
    f(&P::t_0, "t_0", Range{0.0, kLargestSetting, true, false}, "s",
      "Time between the writing of a device and the end of programming, from which drift counts.");
    f(&P::t_read, "t_read", Range{0.0, kLargestSetting, true, false}, "s",
      "Duration of a read; the 1/f noise of shorter times does not count.");
  }
};

/// clip(slope ln g + offset, least, largest) of a conductance relative to g_max, for bounds that
/// are not zero.
PULSORA_HD float clippedLog(float g, float slope, float offset, float least, float largest) {
  const float kLn2 = 0.69314718f;
  const float log2 = pulsora::log2OfNormal(pulsora::maxForCompare(g, 1e-7f));
  return pulsora::limit(pulsora::fma(slope * kLn2, log2, offset), least, largest);
}

/// The power law of drift and its 1/f read noise. With T = t + t_0:
///
///     G_prog = max(G + prog_noise_scale sigma(G) xi, 0)
///     nu     = drift_scale |mean(G) + std(G) xi'|, a property of the device
///     G(t)   = G_prog (T / t_0)^-nu
///     sigma' = read_noise_scale G(t) Q(G_prog) sqrt(ln((T + t_read) / 2 t_read))
///     read   = max(G(t) + sigma' xi'', 0)
///
/// `Curves` has the functions of a model: programSigma(G, p) in uS, nuMean(G, p), nuStd(G, p), and
/// readNoise(G, p), the Q above.
template <class Curves>
// NOLINTNEXTLINE(bugprone-crtp-constructor-accessibility): it has functions alone
struct PowerLawOf {
  struct Time {
    float log2Ratio = 0.0f;   ///< log2(T / t_0)
    float readGrowth = 0.0f;  ///< sqrt(ln((T + t_read) / 2 t_read))
  };

  template <class P>
  static double lastTime(const P &) {
    return std::numeric_limits<double>::infinity();
  }
  template <class P>
  static Time timeOf(double t, const P &p) {
    const double begin = static_cast<double>(p.t_0);
    const double read = static_cast<double>(p.t_read);
    const double growth = std::log((t + begin + read) / (2.0 * read));
    return {static_cast<float>(std::log1p(t / begin) / std::log(2.0)),
            static_cast<float>(std::sqrt(growth > 0.0 ? growth : 0.0))};
  }

  template <class P>
  static double readDuration(const P &p) {
    return static_cast<double>(p.t_read);
  }
  template <class P>
  static double ageOf(double t, const P &p) {
    return t + static_cast<double>(p.t_0);
  }

  PULSORA_HD static bool drifts(const Time &time) { return time.log2Ratio > 0.0f; }
  template <class P>
  PULSORA_HD static float programmed(float target, float xi, const P &p) {
    const float sigma = p.prog_noise_scale * Curves::programSigma(target, p);
    return pulsora::max(pulsora::fma(sigma, xi, target), 0.0f);
  }
  /// The exponent nu of a device.
  template <class P>
  PULSORA_HD static float exponent(float target, float xi, const P &p) {
    const float nu = pulsora::fma(Curves::nuStd(target, p), xi, Curves::nuMean(target, p));
    return p.drift_scale * pulsora::abs(nu);
  }

  /// The numbers that a device keeps over time: nu and Q.
  struct Kept {
    float exponent;
    float readNoise;
  };
  template <class P>
  PULSORA_HD static Kept kept(float target, float programmed, float xi, const P &p) {
    return {exponent(target, xi, p), Curves::readNoise(programmed, p)};
  }
  PULSORA_HD static float drifted(const Kept &kept, float programmed, const Time &time) {
    const float halvings = pulsora::minForCompare(kept.exponent * time.log2Ratio, 120.0f);
    return programmed * pulsora::exp2OfBounded(-halvings);
  }
  template <class P>
  PULSORA_HD static float readSigma(const Kept &kept, float drifted, const Time &time, const P &p) {
    return p.read_noise_scale * drifted * kept.readNoise * time.readGrowth;
  }
  template <class P>
  PULSORA_HD static float drifted(float target, float programmed, const DriftDraws &xi,
                                  const Time &time, const P &p) {
    return drifted(Kept{exponent(target, xi.kept, p), 0.0f}, programmed, time);
  }
  template <class P>
  PULSORA_HD static float readSigma(float drifted, float programmed, const Time &time, const P &p) {
    return readSigma(Kept{0.0f, Curves::readNoise(programmed, p)}, drifted, time, p);
  }
  template <class P>
  PULSORA_HD static float limited(float g, const Time &, const P &) {
    return pulsora::max(g, 0.0f);
  }
};

/// A power law given by tables.
struct PowerLaw : PowerLawOf<PowerLaw> {
  static constexpr const char *kName = "PowerLaw";
  static constexpr const char *kDoc =
      "Drift by a power law whose numbers are tables over the conductance: for measured devices. "
      "Tables are linear between their nodes and constant beyond them.";

  struct Params : PowerLawParams {
    static constexpr const char *kName = "PowerLaw";

    FloatList g = listOf(0.0f, 1.0f);
    FloatList sigma = listOf(0.0f, 0.0f);
    FloatList nu_mean = listOf(0.05f, 0.05f);
    FloatList nu_std = listOf(0.0f, 0.0f);
    FloatList read_noise = listOf(0.0f, 0.0f);

    template <class Visit>
    PULSORA_HD void usual(const Visit &visit) {
      visit(g.count, 2);
    }
    template <class Visitor>
    static void fields(Visitor &f) {
      using P = Params;
      PowerLawParams::fields(f);
      f(&P::g, "g", between(0.0, 1.0), "g_max", "Nodes of the tables, ascending.");
      f(&P::sigma, "sigma", between(0.0, kLargestSetting), "uS",
        "Standard deviation of the programming error at each node.");
      f(&P::nu_mean, "nu_mean", between(-kLargestSetting, kLargestSetting), "",
        "Mean of the drift exponent at each node.");
      f(&P::nu_std, "nu_std", between(0.0, kLargestSetting), "",
        "Standard deviation of the drift exponent at each node.");
      f(&P::read_noise, "read_noise", between(0.0, kLargestSetting), "relative",
        "Strength Q of the 1/f noise at each node: its standard deviation is G Q sqrt(ln((T + "
        "t_read) / 2 t_read)).");
    }
    template <class Check>
    void check(const Check &c) const {
      PowerLawParams::check(c);
      requireNodes(c, "g", g);
      requireEntries(c, "sigma", sigma, g.count);
      requireEntries(c, "nu_mean", nu_mean, g.count);
      requireEntries(c, "nu_std", nu_std, g.count);
      requireEntries(c, "read_noise", read_noise, g.count);
    }
  };

  PULSORA_HD static float programSigma(float target, const Params &p) {
    return valueAt(p.sigma, placeOf(p.g, p.relative(target)));
  }
  PULSORA_HD static float nuMean(float target, const Params &p) {
    return valueAt(p.nu_mean, placeOf(p.g, p.relative(target)));
  }
  PULSORA_HD static float nuStd(float target, const Params &p) {
    return valueAt(p.nu_std, placeOf(p.g, p.relative(target)));
  }
  PULSORA_HD static float readNoise(float programmed, const Params &p) {
    return valueAt(p.read_noise, placeOf(p.g, p.relative(programmed)));
  }
};

}  // namespace pulsora
