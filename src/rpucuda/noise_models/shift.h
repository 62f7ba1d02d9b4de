#pragma once

#include <cmath>
#include <limits>

#include "noise_models/noise_model.h"

namespace pulsora {

/// Parameters of models that are given by their distribution at several times.
struct ShiftParams : NoiseParams {
  float persistence = 0.0f;

  template <class Visitor>
  static void fields(Visitor &f) {
    NoiseParams::fields(f);
    f(&ShiftParams::persistence, "persistence", between(0.0, 1.0), "",
      "Memory of a device's deviation: 0, it is drawn anew at each time; 1, the programming error "
      "stays, and only the growth of the variance is new. Mean and variance do not depend on it.");
  }
};

/// A place between two times of a table.
struct ShiftTime {
  int node = 0;        ///< index of the earlier time
  int next = 0;        ///< index of the later time
  float u = 0.0f;      ///< share of the logarithmic distance
  bool begun = false;  ///< whether any time has passed since programming
};

/// Shift and spread of the conductance over the logarithm of time. At a time t the deviation from
/// the target has mean drift_scale shift(G, t) and standard deviation sigma(G, t):
///
///     G_prog = max(G + shift(G, first) + prog_noise_scale sigma(G, first) xi, 0)
///     G(t)   = max(G + shift(G, t) + prog_noise_scale sigma(G, t) (r xi + sqrt(1 - r^2) zeta), 0)
///     r      = persistence min(sigma(G, first) / sigma(G, t), 1)
///     zeta   = persistence xi' + sqrt(1 - persistence^2) xi''
///
/// with xi' a property of the device and xi'' drawn anew at each time. The part r xi is taken from
/// G_prog. Between two times of the table, shift and sigma are linear in ln t; before the first,
/// they are those of the first.
///
/// `Curves` has: times(p), a list of times in s; sigma(G, i, p) and shift(G, i, p) in uS at time i;
/// extrapolates(p), whether the last segment goes on.
template <class Curves>
// NOLINTNEXTLINE(bugprone-crtp-constructor-accessibility): it has functions alone
struct ShiftOf {
  using Time = ShiftTime;

  template <class P>
  static double lastTime(const P &p) {
    const FloatList times = Curves::times(p);
    if (Curves::extrapolates(p)) return std::numeric_limits<double>::infinity();
    // NOLINTNEXTLINE(clang-analyzer-security.ArrayBound): times are never empty
    return static_cast<double>(times.values[times.count - 1]);
  }
  template <class P>
  static Time timeOf(double t, const P &p) {
    const FloatList times = Curves::times(p);
    Time time;
    time.begun = t > 0.0;
    if (times.count < 2 || !(t > static_cast<double>(times.values[0]))) return time;
    while (time.node + 2 < times.count && t >= static_cast<double>(times.values[time.node + 1]))
      ++time.node;
    time.next = time.node + 1;
    const double low = std::log(static_cast<double>(times.values[time.node]));
    const double high = std::log(static_cast<double>(times.values[time.next]));
    time.u = static_cast<float>((std::log(t) - low) / (high - low));
    return time;
  }

  template <class P>
  static double readDuration(const P &) {
    return 0.0;
  }
  template <class P>
  static double ageOf(double t, const P &) {
    return t;
  }

  PULSORA_HD static bool drifts(const Time &time) { return time.begun; }
  template <class P>
  PULSORA_HD static float programmed(float target, float xi, const P &p) {
    const float mean = pulsora::fma(p.drift_scale, Curves::shift(target, 0, p), target);
    return pulsora::max(pulsora::fma(p.prog_noise_scale * Curves::sigma(target, 0, p), xi, mean),
                        0.0f);
  }
  template <class P>
  PULSORA_HD static float drifted(float target, float programmed, const DriftDraws &xi,
                                  const Time &time, const P &p) {
    const float first = Curves::sigma(target, 0, p);
    const float low = Curves::sigma(target, time.node, p);
    const float sigma =
        pulsora::max(pulsora::fma(time.u, Curves::sigma(target, time.next, p) - low, low), 0.0f);
    const float lowShift = Curves::shift(target, time.node, p);
    const float shift =
        pulsora::fma(time.u, Curves::shift(target, time.next, p) - lowShift, lowShift);
    const float share = sigma > 0.0f ? pulsora::min(first / sigma, 1.0f) : 0.0f;
    const float r = p.persistence * share;
    const float fresh = pulsora::sqrt(pulsora::fma(-p.persistence, p.persistence, 1.0f));
    const float zeta = pulsora::fma(p.persistence, xi.kept, fresh * xi.anew);
    const float start = pulsora::fma(p.drift_scale, Curves::shift(target, 0, p), target);
    // r sigma xi, from the programmed conductance.
    const float kept = first > 0.0f ? r * (sigma / first) * (programmed - start) : 0.0f;
    const float added =
        p.prog_noise_scale * sigma * pulsora::sqrt(pulsora::fma(-r, r, 1.0f)) * zeta;
    const float mean = pulsora::fma(p.drift_scale, shift, target);
    return pulsora::select(time.begun, pulsora::max(mean + kept + added, 0.0f), programmed);
  }
  template <class P>
  PULSORA_HD static float readSigma(float, float, const Time &, const P &) {
    return 0.0f;
  }
  template <class P>
  PULSORA_HD static float limited(float g, const Time &, const P &) {
    return pulsora::max(g, 0.0f);
  }
};

/// A Shift law given by tables.
struct Shift : ShiftOf<Shift> {
  static constexpr const char *kName = "Shift";
  static constexpr const char *kDoc =
      "Mean shift and standard deviation of the conductance as tables over conductance and time: "
      "for memories measured at several times. Linear between nodes, in ln t over time.";

  struct Params : ShiftParams {
    static constexpr const char *kName = "Shift";

    FloatList times = listOf(1.0f);
    FloatList g = listOf(0.0f, 1.0f);
    FloatList shift = listOf(0.0f, 0.0f);
    FloatList sigma = listOf(0.0f, 0.0f);
    bool extrapolate = false;

    template <class Visit>
    PULSORA_HD void usual(const Visit &visit) {
      visit(g.count, 2);
    }
    template <class Visitor>
    static void fields(Visitor &f) {
      using P = Params;
      ShiftParams::fields(f);
      f(&P::times, "times", Range{0.0, kLargestSetting, true, false}, "s",
        "Times of the tables, ascending; the first is the end of programming.");
      f(&P::g, "g", between(0.0, 1.0), "g_max", "Nodes of the tables, ascending.");
      f(&P::shift, "shift", between(-kLargestSetting, kLargestSetting), "uS",
        "Mean deviation from the target: the nodes of the first time, of the second, ...");
      f(&P::sigma, "sigma", between(0.0, kLargestSetting), "uS",
        "Standard deviation, in the order of shift.");
      f(&P::extrapolate, "extrapolate", anyNumber(), "",
        "Whether times beyond the table are allowed; the last segment then goes on.");
    }
    template <class Check>
    void check(const Check &c) const {
      ShiftParams::check(c);
      requireNodes(c, "times", times);
      requireNodes(c, "g", g);
      requireEntries(c, "shift", shift, times.count * g.count);
      requireEntries(c, "sigma", sigma, times.count * g.count);
    }
  };

  static FloatList times(const Params &p) { return p.times; }
  static bool extrapolates(const Params &p) { return p.extrapolate; }
  PULSORA_HD static float sigma(float target, int time, const Params &p) {
    return valueAt(p.sigma, placeOf(p.g, p.relative(target)), time * p.g.count);
  }
  PULSORA_HD static float shift(float target, int time, const Params &p) {
    return valueAt(p.shift, placeOf(p.g, p.relative(target)), time * p.g.count);
  }
};

}  // namespace pulsora
