#pragma once

#include <cmath>
#include <limits>
#include <pulsora/noise_models/noise_model.h>

namespace pulsora {

/// A memory that loses a share of its conductance by a stretched exponential.
struct StretchedLoss {
  static constexpr const char *kName = "StretchedLoss";
  static constexpr const char *kDoc =
      "A memory that loses a share of its conductance by a stretched exponential: G(t) = G_prog (1 "
      "- s (1 - exp(-(t / tau)^beta))), where the share s differs between devices.";

  struct Params : NoiseParams {
    static constexpr const char *kName = "StretchedLoss";
    float prog_std = 0.02f;
    float loss = 0.3f;
    float loss_std = 0.05f;
    float tau = 1e4f;
    float beta = 0.4f;
    float read_std = 0.01f;

    template <class Visitor>
    static void fields(Visitor &f) {
      NoiseParams::fields(f);
      f(&Params::prog_std, "prog_std", between(0.0, 1.0), "g_max",
        "Standard deviation of the programming error.");
      f(&Params::loss, "loss", between(0.0, 1.0), "relative", "Mean of the share s.");
      f(&Params::loss_std, "loss_std", between(0.0, 1.0), "relative",
        "Standard deviation of s between devices.");
      f(&Params::tau, "tau", positive(), "s", "Time constant.");
      f(&Params::beta, "beta", Range{0.0, 1.0, true, false}, "", "Exponent; 1 is no stretching.");
      f(&Params::read_std, "read_std", between(0.0, 1.0), "g_max",
        "Standard deviation of a reading.");
    }
  };

  // What depends on the time alone: on the host, in double precision, once for each time.
  struct Time {
    float progress = 0.0f;  // 1 - exp(-(t / tau)^beta)
  };
  static Time timeOf(double t, const Params &p) {
    const double x = std::pow(t / static_cast<double>(p.tau), static_cast<double>(p.beta));
    return {static_cast<float>(-std::expm1(-x))};
  }
  static double lastTime(const Params &) { return std::numeric_limits<double>::infinity(); }
  static double readDuration(const Params &) { return 0.0; }  // no 1/f noise
  static double ageOf(double t, const Params &) { return t; }

  // Of each device, on CPU and GPU: xi are standard normals that the library draws.
  PULSORA_HD static float programmed(float target, float xi, const Params &p) {
    const float sigma = p.prog_noise_scale * p.prog_std * p.g_max;
    return pulsora::clamp(pulsora::fma(sigma, xi, target), p.g_min, p.g_max);
  }
  PULSORA_HD static float drifted(float, float programmed, const DriftDraws &xi, const Time &time,
                                  const Params &p) {
    const float share = pulsora::clamp(pulsora::fma(p.loss_std, xi.kept, p.loss), 0.0f, 1.0f);
    return programmed * pulsora::fma(-p.drift_scale * share, time.progress, 1.0f);
  }
  PULSORA_HD static float readSigma(float, float, const Time &, const Params &p) {
    return p.read_noise_scale * p.read_std * p.g_max;
  }
  PULSORA_HD static float limited(float g, const Time &, const Params &p) {
    return pulsora::clamp(g, p.g_min, p.g_max);
  }
};

}  // namespace pulsora
