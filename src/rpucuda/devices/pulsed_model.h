#pragma once

#include <type_traits>

#include "devices/cell_draws.h"
#include "numerics/math.h"
#include "parameters/field_types.h"

// Parts of every pulsed device model: parameters, the sampled cell, and the meaning of the words
// below.
//
//   Params    per array, read from the configuration
//   Cell      per cross-point, sampled once: dimensionless numbers of order 1, stored as 16-bit
//             floats
//   Response  the values of one cell that a pulse needs, in single precision; derived from (Cell,
//             Params) whenever a kernel starts
//
// A model is a struct of static functions over these (soft_bounds.h is a short one). Formulas
// follow Gokmen & Vlasov, Front. Neurosci. 10:333 (2016) and the published semantics of AIHWKit.

namespace pulsora {

/// How several pulses that meet a cell within one sample are drawn.
enum class PulseNoise {
  ClosedForm,  ///< one normal per cell and sample wherever the sum of the pulses has a closed form
  Sequential,  ///< one normal per pulse, always
};
template <>
struct EnumNames<PulseNoise> {
  static constexpr const char *kNames[] = {"closed_form", "sequential"};
};

/// How the noise of the samples of one update is drawn.
enum class NoiseMerge {
  None,   ///< sample by sample, so that cutting a mini-batch leaves the same bits
  Batch,  ///< one normal per cell and update (devices/batch_noise.h)
};
template <>
struct EnumNames<NoiseMerge> {
  static constexpr const char *kNames[] = {"none", "batch"};
};

/// Place of the sampled parameters of cells. The bits of results do not depend on it.
enum class CellStorage {
  Auto,      ///< the compound chooses: computed for arrays that are touched seldom
  Stored,    ///< in planes
  Computed,  ///< drawn again, by the key of the array, whenever an operation touches the cells
};
template <>
struct EnumNames<CellStorage> {
  static constexpr const char *kNames[] = {"auto", "stored", "computed"};
};

/// The largest spread of a log-normal distribution. Normals are drawn below 7, and e^70 leaves room
/// for the factors around it.
constexpr float kLargestLogSpread = 10.0f;
/// The smallest magnitude of a bound other than 0. Models divide by the distance between bounds.
constexpr float kSmallestBound = 1e-15f;
/// The largest step of a pulse, in units of the distance between the bounds, a divisor of steps.
constexpr float kLargestStep = 1e15f;

/// Means, over cells, of the up and the down value of an asymmetric pair around 1 (1 instead of 0,
/// so that each can be a scale).
PULSORA_HD float nominalUp(float upDown) {
  const float mean = 1.0f + pulsora::min(upDown, 0.0f);
  return mean != 0.0f ? mean : 1.0f;
}
PULSORA_HD float nominalDown(float upDown) {
  const float mean = 1.0f - pulsora::max(upDown, 0.0f);
  return mean != 0.0f ? mean : 1.0f;
}

struct PulsedParams {
  float dw_min = 0.001f;
  float dw_min_dtod = 0.3f;
  bool dw_min_dtod_log_normal = false;
  float dw_min_std = 0.3f;
  float w_max = 0.6f;
  float w_min = -0.6f;
  float w_max_dtod = 0.3f;
  float w_min_dtod = 0.3f;
  float up_down = 0.0f;
  float up_down_dtod = 0.01f;
  bool enforce_consistency = true;
  bool adjust_bounds_with_up_down = false;
  float adjust_bounds_with_up_down_dev = 0.0f;
  float corrupt_devices_prob = 0.0f;
  float corrupt_devices_range = 0.1f;
  bool perfect_bias = false;
  float lifetime = 0.0f;
  float lifetime_dtod = 0.0f;
  float diffusion = 0.0f;
  float diffusion_dtod = 0.0f;
  float reset = 0.0f;
  float reset_dtod = 0.0f;
  float reset_std = 0.01f;
  float write_noise_std = 0.0f;
  bool apply_write_noise_on_set = true;
  PulseNoise pulse_noise = PulseNoise::ClosedForm;
  NoiseMerge noise_merge = NoiseMerge::None;
  CellStorage cells = CellStorage::Auto;
  int64_t construction_seed = 0;

  template <class Visitor>
  static void fields(Visitor &f) {
    using P = PulsedParams;
    f(&P::dw_min, "dw_min", positive(), "weight", "Mean weight change of one pulse at weight 0.");
    f(&P::dw_min_dtod, "dw_min_dtod", nonNegative(), "relative",
      "Device-to-device spread of dw_min.");
    f(&P::dw_min_dtod_log_normal, "dw_min_dtod_log_normal", anyNumber(), "",
      "Draw the spread of dw_min from a log-normal instead of a normal distribution; dw_min_dtod "
      "is then at most 10.");
    f(&P::dw_min_std, "dw_min_std", nonNegative(), "relative",
      "Cycle-to-cycle noise of each pulse.");
    f(&P::w_max, "w_max", nonNegative(), "weight",
      "Mean upper weight bound; 0, or at least 1e-15.");
    f(&P::w_min, "w_min", nonPositive(), "weight",
      "Mean lower weight bound; 0, or at most -1e-15.");
    f(&P::w_max_dtod, "w_max_dtod", nonNegative(), "relative",
      "Device-to-device spread of the upper bound.");
    f(&P::w_min_dtod, "w_min_dtod", nonNegative(), "relative",
      "Device-to-device spread of the lower bound.");
    f(&P::up_down, "up_down", anyNumber(), "relative",
      "Mean asymmetry: a positive value weakens the down step, a negative value the up step.");
    f(&P::up_down_dtod, "up_down_dtod", nonNegative(), "relative",
      "Device-to-device spread of the asymmetry.");
    f(&P::enforce_consistency, "enforce_consistency", anyNumber(), "",
      "Take the absolute value of sampled steps, swap inverted bounds, keep w_max >= 0 >= w_min "
      "per cell.");
    f(&P::adjust_bounds_with_up_down, "adjust_bounds_with_up_down", anyNumber(), "",
      "Shift both bounds of a cell by its asymmetry, keeping their distance: a cell that steps "
      "up easily reaches further down.");
    f(&P::adjust_bounds_with_up_down_dev, "adjust_bounds_with_up_down_dev", nonNegative(),
      "relative",
      "Asymmetry, as deviation of the up step's share from 1/2, at which tanh(1) of the shift is "
      "reached.");
    f(&P::corrupt_devices_prob, "corrupt_devices_prob", probability(), "",
      "Probability that a cell is stuck at one value.");
    f(&P::corrupt_devices_range, "corrupt_devices_range", nonNegative(), "weight",
      "Largest magnitude of a stuck cell's value.");
    f(&P::perfect_bias, "perfect_bias", anyNumber(), "",
      "The last column has steps of dw_min, bounds a hundred times wider, and no stuck cells.");
    f(&P::lifetime, "lifetime", nonNegative(), "mini-batches",
      "Decay constant: after each mini-batch the weight relaxes by 1/lifetime towards the reset "
      "value; 0 is off.");
    f(&P::lifetime_dtod, "lifetime_dtod", nonNegative(), "relative",
      "Device-to-device spread of the lifetime.");
    f(&P::diffusion, "diffusion", nonNegative(), "weight",
      "Standard deviation of the random walk a weight makes per mini-batch; 0 is off.");
    f(&P::diffusion_dtod, "diffusion_dtod", nonNegative(), "relative",
      "Device-to-device spread of the diffusion.");
    f(&P::reset, "reset", anyNumber(), "weight",
      "Mean value a cell is reset to and decays towards.");
    f(&P::reset_dtod, "reset_dtod", nonNegative(), "weight",
      "Device-to-device spread (additive) of the reset value.");
    f(&P::reset_std, "reset_std", nonNegative(), "weight", "Cycle-to-cycle spread of one reset.");
    f(&P::write_noise_std, "write_noise_std", nonNegative(), "dw_min",
      "Spread of the visible weight around the stored weight, redrawn after each write; 0 is "
      "off.");
    f(&P::apply_write_noise_on_set, "apply_write_noise_on_set", anyNumber(), "",
      "Whether setting weights also draws write noise.");
    f(&P::pulse_noise, "pulse_noise", anyNumber(), "",
      "Draw the pulses of one sample at once where a closed form exists, or one by one.");
    f(&P::noise_merge, "noise_merge", anyNumber(), "",
      "Draw noise for each sample, or once per update for all its samples ('batch': steps constant "
      "or linear in the weight; cutting a mini-batch changes the draws).");
    f(&P::cells, "cells", anyNumber(), "",
      "Keep the sampled parameters of cells in memory ('stored'), or draw them again whenever an "
      "operation touches cells ('computed'): the same bits. 'auto': computed for a visible array "
      "of "
      "LRTT with 100 mini-batches or more between transfers, else stored.");
    f(&P::construction_seed, "construction_seed", atLeast(0), "",
      "Seed of the device-to-device spreads; 0 takes the tile's seed. Tiles that share a seed have "
      "equal cells, array by array.");
  }

  template <class Check>
  void check(const Check &c) const {
    c.require(w_max > w_min, c.path("w_max"), " and ", c.path("w_min"),
              " are both 0, which leaves the weight no range; make at least one of them non-zero");
    c.require(w_max == 0.0f || w_max >= kSmallestBound, c.path("w_max"), " is ", w_max,
              "; it must be 0 or >= ", kSmallestBound);
    c.require(w_min == 0.0f || w_min <= -kSmallestBound, c.path("w_min"), " is ", w_min,
              "; it must be 0 or <= ", -kSmallestBound);
    const float step = pulsora::max(pulsora::abs(stepUpScale()), pulsora::abs(stepDownScale()));
    c.require(step <= kLargestStep * (w_max - w_min), c.path("dw_min"), " is ", dw_min, " and ",
              c.path("up_down"), " is ", up_down, "; a pulse is then more than 1e15 ",
              "times the distance of the bounds; use smaller ones");
    c.require(!dw_min_dtod_log_normal || dw_min_dtod <= kLargestLogSpread, c.path("dw_min_dtod"),
              " is ", dw_min_dtod, " with dw_min_dtod_log_normal, of which it is the exponent's ",
              "spread; it must be <= ", kLargestLogSpread, ", for example 0.5");
    c.require(!adjust_bounds_with_up_down || adjust_bounds_with_up_down_dev > 0.0f,
              c.path("adjust_bounds_with_up_down_dev"), " is ", adjust_bounds_with_up_down_dev,
              " with adjust_bounds_with_up_down; it must be > 0, for example 0.05");
  }

  // Scales of the stored steps and bounds, chosen so that a nominal cell stores exactly 1.
  PULSORA_HD float stepUpScale() const { return dw_min * nominalUp(up_down); }
  PULSORA_HD float stepDownScale() const { return dw_min * nominalDown(up_down); }
  PULSORA_HD float boundMaxScale() const { return w_max != 0.0f ? w_max : w_min; }
  PULSORA_HD float boundMinScale() const { return w_min != 0.0f ? w_min : w_max; }
};

/// The parameters of a model, given their common part, which must belong to that model's Params.
template <class Params>
PULSORA_HD const Params &paramsOf(const PulsedParams &common) {
  static_assert(std::is_base_of_v<PulsedParams, Params>, "a model's Params extend PulsedParams");
  return static_cast<const Params &>(common);
}

/// The stored quantities that every model has.
struct PulsedCell {
  float gain_up = 1.0f;    // step up / stepUpScale()
  float gain_down = 1.0f;  // step down / stepDownScale()
  float bound_max = 1.0f;  // upper bound / boundMaxScale()
  float bound_min = 1.0f;  // lower bound / boundMinScale()

  template <class Visitor>
  PULSORA_HD void members(Visitor &&f) {
    f("gain_up", gain_up);
    f("gain_down", gain_down);
    f("bound_max", bound_max);
    f("bound_min", bound_min);
  }
};

/// The quantities that a pulse of every model needs. Steps are magnitudes; bounds apply to the
/// visible weight.
struct PulsedResponse {
  float step_up;
  float step_down;
  float w_max;
  float w_min;

  template <class Visitor>
  PULSORA_HD void members(Visitor &&f) {
    f(step_up);
    f(step_down);
    f(w_max);
    f(w_min);
  }
  /// The signed step of a pulse, before the model makes it depend on the weight.
  PULSORA_HD float step(bool up) const { return up ? step_up : -step_down; }
  /// The larger step's magnitude.
  PULSORA_HD float largestStep() const {
    return pulsora::max(pulsora::abs(step_up), pulsora::abs(step_down));
  }
  /// Clears members that only Device::pulses() reads, so that kernels without samples of several
  /// pulses do not compute them; a model's Response may hide this function by its own.
  PULSORA_HD void dropClosedForm() {}
  /// Shift of the value that the cell is reset to and decays towards; a model's Response may hide
  /// this function by its own.
  PULSORA_HD float resetShift(const PulsedParams &) const { return 0.0f; }
};

/// A number of pulses in one direction, and the relative cycle noise of their sum: dw_min_std
/// sqrt(n).
struct PulseSum {
  float n;
  float noise;
};

/// n >= 1 pulses. (For n = 0 the noise is 0 on the CPU alone.)
PULSORA_HD PulseSum pulseSum(float n, const PulsedParams &p) {
  return {n, p.dw_min_std * pulsora::sqrtOfNormal(n)};
}

/// Mean and (signed) standard deviation of the weight after n pulses, and the square of the
/// skewness that a normal of these moments neglects; the square grows with n.
struct Moments {
  float mean;
  float sd;
  float skewnessSquared;
};

/// The largest skewness that a closed form may neglect.
constexpr float kNeglectedSkewness = 0.05f;

/// The up and the down value of a quantity with common gain: a positive `upDown` weakens the down
/// side, a negative one the up side.
PULSORA_HD void sampleAsymmetry(float gain, float upDown, float dtod, CellDraws &draws, float &up,
                                float &down) {
  const float asymmetry = dtod * draws.normal();
  up = gain + (pulsora::min(upDown, 0.0f) + asymmetry);
  down = gain - (pulsora::max(upDown, 0.0f) + asymmetry);
}

/// Samples the quantities every model has. `bias` marks a cell of the last column (see
/// perfect_bias).
PULSORA_HD PulsedCell sampleCell(const PulsedParams &p, CellDraws &draws, bool bias) {
  float wMax = p.w_max * pulsora::fma(p.w_max_dtod, draws.normal(), 1.0f);
  float wMin = p.w_min * pulsora::fma(p.w_min_dtod, draws.normal(), 1.0f);
  const float spread = p.dw_min_dtod * draws.normal();
  const float gain = p.dw_min_dtod_log_normal ? pulsora::exp(spread) : 1.0f + spread;
  float up;
  float down;
  sampleAsymmetry(gain, p.up_down, p.up_down_dtod, draws, up, down);
  if (p.enforce_consistency) {
    up = pulsora::abs(up);
    down = pulsora::abs(down);
    if (wMax < wMin) {
      const float swapped = wMax;
      wMax = wMin;
      wMin = swapped;
    }
    wMax = pulsora::abs(wMax);
    wMin = -pulsora::abs(wMin);
  } else if (wMin > wMax) {
    wMin = wMax = 0.5f * (wMin + wMax);
  }
  if (p.adjust_bounds_with_up_down) {
    const float range = wMax - wMin;
    const float share = up + down != 0.0f ? up / (up + down) : 0.5f;
    wMin =
        -0.5f * range * (pulsora::tanh((share - 0.5f) / p.adjust_bounds_with_up_down_dev) + 1.0f);
    wMax = wMin + range;
  }
  if (draws.uniformNumber() < p.corrupt_devices_prob) {
    const float low = pulsora::max(wMin, -p.corrupt_devices_range);
    const float high = pulsora::min(wMax, p.corrupt_devices_range);
    wMax = wMin = pulsora::fma(high - low, draws.uniformNumber(), low);
    up = down = 0.0f;
  }
  if (p.perfect_bias && bias) {
    up = down = 1.0f;
    wMax = 100.0f * p.w_max;
    wMin = 100.0f * p.w_min;
  }
  return {up / nominalUp(p.up_down), down / nominalDown(p.up_down), wMax / p.boundMaxScale(),
          wMin / p.boundMinScale()};
}

PULSORA_HD PulsedResponse pulsedResponse(const PulsedCell &cell, const PulsedParams &p) {
  PulsedResponse r;
  r.step_up = p.stepUpScale() * cell.gain_up;
  r.step_down = p.stepDownScale() * cell.gain_down;
  // No bound is -0: minima and maxima of zeros differ between processors.
  r.w_max = p.boundMaxScale() * cell.bound_max + 0.0f;
  r.w_min = p.boundMinScale() * cell.bound_min + 0.0f;
  // Both bounds of a stuck cell were rounded to 16 bits on different scales; they are meant to be
  // one value.
  const bool stuck = cell.gain_up == 0.0f && cell.gain_down == 0.0f;
  r.w_min = stuck ? r.w_max : r.w_min;
  return r;
}

/// Confines a weight to its cell's bounds. Bounds are never -0, nor is the result.
PULSORA_HD float clipWeight(float w, const PulsedResponse &r) {
  return pulsora::minForCompare(pulsora::maxForCompare(w, r.w_min), r.w_max);
}

/// The weight change that pulse trains are scaled by: the mean of a pulse up and a pulse down at
/// weight 0, without noise, of a cell without spread. A bound at 0 leaves one direction.
template <class Device>
float stepAtZero(const typename Device::Params &p) {
  CellDraws draws = CellDraws::withoutSpread();
  const auto r = Device::response(Device::construct(p, draws, false), p);
  const float up = pulsora::abs(Device::pulse(0.0f, true, r, p, 0.0f));
  const float down = pulsora::abs(Device::pulse(0.0f, false, r, p, 0.0f));
  if (r.w_max <= 0.0f) return down;
  return r.w_min >= 0.0f ? up : 0.5f * (up + down);
}

/// The square of the skewness that closed forms may neglect; pulse_noise = "sequential" gives -1,
/// which refuses all.
PULSORA_HD float skewnessLimit(const PulsedParams &p) {
  return p.pulse_noise == PulseNoise::ClosedForm ? kNeglectedSkewness * kNeglectedSkewness : -1.0f;
}

/// Whether the closed form may replace n pulses one after another: no bound within five standard
/// deviations of the path, and a skewness that a normal may neglect.
PULSORA_HD bool closedFormHolds(float w, const Moments &m, const PulsedResponse &r,
                                const PulsedParams &p) {
  const float limit = skewnessLimit(p);
  const float margin = 5.0f * pulsora::abs(m.sd);
  const float lowest = pulsora::minForCompare(w, m.mean) - margin;
  const float highest = pulsora::maxForCompare(w, m.mean) + margin;
  // Integers, because GCC 13 does not vectorise a loop over this product of truth values.
  const uint32_t holds = (m.skewnessSquared < limit ? 1U : 0U) & (lowest >= r.w_min ? 1U : 0U) &
                         (highest <= r.w_max ? 1U : 0U);
  return holds != 0;
}

}  // namespace pulsora
