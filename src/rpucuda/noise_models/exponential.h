#pragma once

#include <limits>

#include "noise_models/noise_model.h"

namespace pulsora {

/// A memory whose cells leak: each approaches a resting conductance exponentially. With rest the
/// conductance at rest:
///
///     G_prog = max(G + prog_noise_scale sigma(G) xi, 0)
///     rate   = drift_scale exp(tau_std(G) xi') / tau(G), a property of the device
///     G(t)   = rest + (G_prog - rest) exp(-rate t)
///     read   = max(G(t) + read_noise_scale G(t) Q(G_prog) xi'', 0)
struct Exponential {
  static constexpr const char *kName = "Exponential";
  static constexpr const char *kDoc =
      "A memory whose cells leak: the conductance approaches a resting value exponentially, with a "
      "time constant for each device. Numbers are tables over the conductance, linear between "
      "their nodes and constant beyond them.";

  struct Params : NoiseParams {
    static constexpr const char *kName = "Exponential";

    float rest = 0.0f;
    FloatList g = listOf(0.0f, 1.0f);
    FloatList sigma = listOf(0.0f, 0.0f);
    FloatList tau = listOf(46505.0f, 46505.0f);
    FloatList tau_std = listOf(0.0f, 0.0f);
    FloatList read_noise = listOf(0.0f, 0.0f);

    template <class Visit>
    PULSORA_HD void usual(const Visit &visit) {
      visit(g.count, 2);
    }
    template <class Visitor>
    static void fields(Visitor &f) {
      using P = Params;
      NoiseParams::fields(f);
      f(&P::rest, "rest", between(0.0, kLargestSetting), "uS",
        "The conductance that cells approach.");
      f(&P::g, "g", between(0.0, 1.0), "g_max", "Nodes of the tables, ascending.");
      f(&P::sigma, "sigma", between(0.0, kLargestSetting), "uS",
        "Standard deviation of the programming error at each node.");
      f(&P::tau, "tau", Range{0.0, kLargestSetting, true, false}, "s",
        "Time constant at each node, that of the median device. The default is that of the "
        "capacitor of a 6T1C cell.");
      f(&P::tau_std, "tau_std", between(0.0, 10.0), "",
        "Standard deviation of the logarithm of the time constant between devices, at each node.");
      f(&P::read_noise, "read_noise", between(0.0, kLargestSetting), "relative",
        "Standard deviation of a reading relative to the conductance, at each node.");
    }
    template <class Check>
    void check(const Check &c) const {
      NoiseParams::check(c);
      c.require(rest <= g_max, c.path("rest"), " is ", rest, " and ", c.path("g_max"), " is ",
                g_max, "; cells approach a conductance that they can hold: give g_max or less");
      requireNodes(c, "g", g);
      requireEntries(c, "sigma", sigma, g.count);
      requireEntries(c, "tau", tau, g.count);
      requireEntries(c, "tau_std", tau_std, g.count);
      requireEntries(c, "read_noise", read_noise, g.count);
    }
  };
  struct Time {
    float seconds = 0.0f;
  };

  static double lastTime(const Params &) { return std::numeric_limits<double>::infinity(); }
  static double readDuration(const Params &) { return 0.0; }
  static double ageOf(double t, const Params &) { return t; }
  static Time timeOf(double t, const Params &) { return {static_cast<float>(t)}; }

  PULSORA_HD static bool drifts(const Time &time) { return time.seconds > 0.0f; }
  PULSORA_HD static float programmed(float target, float xi, const Params &p) {
    const float sigma = valueAt(p.sigma, placeOf(p.g, p.relative(target)));
    return pulsora::max(pulsora::fma(p.prog_noise_scale * sigma, xi, target), 0.0f);
  }
  PULSORA_HD static float drifted(float target, float programmed, const DriftDraws &xi,
                                  const Time &time, const Params &p) {
    const TablePlace place = placeOf(p.g, p.relative(target));
    const float spread = pulsora::exp(valueAt(p.tau_std, place) * xi.kept);
    const float rate = p.drift_scale * spread / valueAt(p.tau, place);
    const float left = pulsora::exp(-rate * time.seconds);
    return time.seconds > 0.0f ? pulsora::fma(programmed - p.rest, left, p.rest) : programmed;
  }
  PULSORA_HD static float readSigma(float drifted, float programmed, const Time &,
                                    const Params &p) {
    return p.read_noise_scale * drifted *
           valueAt(p.read_noise, placeOf(p.g, p.relative(programmed)));
  }
  PULSORA_HD static float limited(float g, const Time &, const Params &) {
    return pulsora::max(g, 0.0f);
  }
};

}  // namespace pulsora
