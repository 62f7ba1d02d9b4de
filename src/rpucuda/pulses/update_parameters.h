#pragma once

#include "parameters/field.h"

namespace pulsora {

/// How x and d become pulses.
enum class PulseType {
  StochasticCompressed,  ///< one pass; each line sends one random pulse train and its sign
  Stochastic,  ///< positive and negative x in two passes, with fresh pulse trains on the d lines
  MeanCount,   ///< the mean number of coincidences of the two lines' counts, rounded
  DeterministicImplicit,  ///< round(BL x_q d_q) pulses from quantised values
  None,                   ///< floating-point outer product; the device is bypassed, bounds included
  NoneWithDevice,  ///< floating-point outer product; the device's bounds at the mini-batch's end
};
template <>
struct EnumNames<PulseType> {
  static constexpr const char *kNames[] = {
      "stochastic_compressed",  "stochastic", "mean_count",
      "deterministic_implicit", "none",       "none_with_device"};
};
/// Whether the update is an outer product in floating point, without pulses.
constexpr bool isDigital(PulseType type) {
  return type == PulseType::None || type == PulseType::NoneWithDevice;
}
/// Whether lines send pulse trains whose slots fire at random.
constexpr bool sendsRandomTrains(PulseType type) {
  return type == PulseType::StochasticCompressed || type == PulseType::Stochastic;
}

/// Parameters of the pulsed update.
struct UpdateParameters {
  static constexpr const char *kName = "UpdateParameters";

  PulseType pulse_type = PulseType::StochasticCompressed;
  int desired_bl = 31;
  bool fixed_bl = true;
  bool update_management = true;
  bool update_bl_management = true;
  float um_grad_scale = 1.0f;
  float res = 0.0f;
  bool sto_round = false;
  float x_res_implicit = 0.0f;
  float d_res_implicit = 0.0f;

  template <class Visitor>
  static void fields(Visitor &f) {
    using P = UpdateParameters;
    f(&P::pulse_type, "pulse_type", anyNumber(), "",
      "Conversion of activations and gradients to pulses; 'none' and 'none_with_device' add the "
      "outer product in floating point, without bounds or with bounds applied when the "
      "mini-batch ends.");
    f(&P::desired_bl, "desired_bl", between(1, 65536), "slots",
      "Length of the pulse trains, or its upper limit.");
    f(&P::fixed_bl, "fixed_bl", anyNumber(), "",
      "Keep the length of pulse trains at desired_bl; otherwise it follows the learning rate, "
      "ceil(lr / dw_min), up to desired_bl.");
    f(&P::update_management, "update_management", anyNumber(), "",
      "Balance the pulse probabilities of x and d by the ratio of their largest values.");
    f(&P::update_bl_management, "update_bl_management", anyNumber(), "",
      "Shorten each sample's pulse trains to the length its largest update needs. Implies "
      "update_management.");
    f(&P::um_grad_scale, "um_grad_scale", positive(), "",
      "Factor on the largest d that update management assumes.");
    f(&P::res, "res", nonNegative(), "probability",
      "Resolution of the pulse probabilities; 0 is exact, a value above 1 is a number of steps.");
    f(&P::sto_round, "sto_round", anyNumber(), "",
      "Round probabilities to their resolution stochastically.");
    f(&P::x_res_implicit, "x_res_implicit", nonNegative(), "relative",
      "Resolution of x for deterministic pulses; 0 is exact, a value above 1 is a number of "
      "steps.");
    f(&P::d_res_implicit, "d_res_implicit", nonNegative(), "relative",
      "Resolution of d for deterministic pulses; 0 is exact, a value above 1 is a number of "
      "steps.");
  }

  template <class Check>
  void check(const Check &c) const {
    checkResolution(c, "res", res);
    checkResolution(c, "x_res_implicit", x_res_implicit);
    checkResolution(c, "d_res_implicit", d_res_implicit);
  }

 private:
  // Beyond these limits, numbers of steps overflow.
  template <class Check>
  static void checkResolution(const Check &c, const char *name, float value) {
    c.require(value == 0.0f || (value >= 1e-30f && value <= 1e30f), c.path(name), " is ", value,
              "; it must be 0 (exact), or between 1e-30 and 1e30");
  }
};

}  // namespace pulsora
