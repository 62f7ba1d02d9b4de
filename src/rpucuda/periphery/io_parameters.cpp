#include "periphery/io_parameters.h"

#include <cmath>
#include <limits>

#include "core/check.h"
#include "linalg/integers.h"
#include "parameters/limits.h"

namespace pulsora {
namespace {

double stepOf(float resolution, float bound) {
  const double relative = resolution > 1.0f ? 1.0 / double(resolution) : double(resolution);
  return 2.0 * double(bound) * relative;
}

void checkConverter(const std::string &prefix, const std::string &side, float resolution,
                    float bound, bool stochastic) {
  const std::string res = joinPath(prefix, side + "_res");
  PULSORA_CHECK(ConfigError, resolution <= 1.0f || resolution == std::floor(resolution), res,
                " is ", resolution,
                ", which is neither a step nor a number of steps; write a value up to 1 "
                "for the step relative to the range, or a whole number of steps");
  PULSORA_CHECK(ConfigError, resolution == 0.0f || bound > 0.0f, res, " is ", resolution, " but ",
                joinPath(prefix, side + "_bound"),
                " is 0, which is unlimited: steps are fractions of a "
                "range; set ",
                side, "_bound, or ", side, "_res = 0");
  constexpr double kSmallestStep = 1e-30;  // quotients by it stay finite
  PULSORA_CHECK(ConfigError, resolution == 0.0f || stepOf(resolution, bound) >= kSmallestStep, res,
                " is ", resolution, ", which makes steps of ", stepOf(resolution, bound),
                "; they must be ", kSmallestStep, " at least: use a larger one, or 0 (exact)");
  PULSORA_CHECK(ConfigError, !stochastic || resolution > 0.0f,
                joinPath(prefix, side + "_sto_round"), " is true but ", res,
                " is 0, which does not round; set ", side, "_res, or ", side, "_sto_round = false");
}

}  // namespace

double IOParameters::inputStep() const { return stepOf(inp_res, inp_bound); }
double IOParameters::outputStep() const { return stepOf(out_res, out_bound); }

double IOParameters::outputGain(double meanBend) const {
  const double slope =
      1.0 + (meanBend + double(r_series)) * double(slope_calibration) * double(out_bound);
  return slope * slope;
}

int IOParameters::integerBits() const {
  constexpr int kAutomatic = 24;
  const int bits = weight_bits.automatic ? kAutomatic : weight_bits.value;
  return bits < 32 && whyNoIntegers().empty() ? bits : 0;
}

int32_t IOParameters::largestLevel() const {
  return static_cast<int32_t>(std::rint(double(inp_bound) / inputStep()));
}

int IOParameters::levelBits() const {
  int bits = 0;
  for (int32_t level = largestLevel(); level > 0; level >>= 1) ++bits;
  return bits;
}

int IOParameters::sliceCount() const {
  const auto each = static_cast<int>(input_slice_bits);
  return (levelBits() + each - 1) / each;
}

IOParameters IOParameters::ofSlice() const {
  IOParameters slice = *this;
  slice.mv_type = MvType::OnePass;
  slice.inp_res = 1.0f / static_cast<float>(2 * ((1 << input_slice_bits) - 1));
  slice.inp_sto_round = false;
  slice.noise_management = NoiseManagement::None;
  slice.bound_management = BoundManagement::None;
  slice.out_scale = 1.0f;
  if (!addsSlices()) return slice;
  slice.out_bound = slice.out_res = slice.out_noise = slice.out_noise_std = 0.0f;
  slice.out_nonlinearity = slice.out_asymmetry = slice.slope_calibration = 0.0f;
  slice.out_sto_round = false;
  return slice;
}

std::string IOParameters::whyNoIntegers() const {
  if (is_perfect) return "is_perfect is true";
  if (inp_noise > 0.0f) return message("inp_noise is ", inp_noise);
  if (solvesWires()) return "wires is 'solved'";
  return whyNoLevels();
}

std::string IOParameters::whyNoLevels() const {
  if (inp_res == 0.0f) return "inp_res is 0, a continuous input";
  const double levels = double(inp_bound) / inputStep();
  if (levels > double(kLargestLevel) + 0.5)
    return message("inp_res is ", inp_res, ", which makes more than ", kLargestLevel,
                   " levels on each side of 0");
  constexpr double kRounding = 1e-5;  // of inp_res, a number in single precision
  if (std::fabs(levels - std::rint(levels)) > kRounding * levels)
    return message("inp_res is ", inp_res, ", so that inp_bound is ", levels,
                   " steps, not a whole number");
  return {};
}

int IOParameters::doublings() const {
  double limit = double(max_bm_factor);
  if (inp_res > 0.0f) limit = std::fmin(limit, double(max_bm_res) / inputStep());
  int count = 0;
  while (std::ldexp(1.0, count) < limit) ++count;
  return count;
}

void IOParameters::check(const ParamsCheck &c) const {
  if (is_perfect) return;
  const auto needs = [&](bool fine, const char *name, const auto &value, const auto &...why) {
    c.require(fine, c.path(name), " is ", value, ", ", why...);
  };
  const int bits = weight_bits.automatic ? 32 : weight_bits.value;
  needs(bits == 16 || bits == 24 || bits == 32, "weight_bits", bits,
        "but it must be 16, 24, 32 or 'auto'");
  const auto quoted = [](auto value) { return message("'", nameOf(value), "'"); };
  checkConverter(c.prefix, "inp", inp_res, inp_bound, inp_sto_round);
  checkConverter(c.prefix, "out", out_res, out_bound, out_sto_round);
  needs(bits == 32 || whyNoIntegers().empty(), "weight_bits", bits,
        "but inputs are no integers of 15 bits: ", whyNoIntegers(),
        "; change that, or set weight_bits to 'auto' or 32");
  needs(noise_management != NoiseManagement::Constant || nm_thres > 0.0f, "noise_management",
        quoted(noise_management), "which divides by nm_thres, and that is 0; set nm_thres");
  needs(noise_management != NoiseManagement::AbsMaxNPSum || out_bound > 0.0f, "noise_management",
        quoted(noise_management),
        "which keeps sums within the ADC, but out_bound is 0, which is unlimited; set out_bound or "
        "take 'abs_max'");
  needs(w_noise == 0.0f || w_noise_type != WeightNoiseType::None, "w_noise", w_noise,
        "but w_noise_type is 'none'; set w_noise_type, or w_noise = 0");
  needs(w_read_asymmetry_dtod == 0.0f || splitsSigns(), "w_read_asymmetry_dtod",
        w_read_asymmetry_dtod, "but mv_type is ", quoted(mv_type),
        ", which reads negative inputs together with positive ones; use 'pos_neg_separate' or "
        "'pos_neg_separate_digital_sum'");
  needs(!isBitSerial() || whyNoLevels().empty(), "mv_type", quoted(mv_type),
        "which reads the bits of levels of the DAC, but ", whyNoLevels(),
        "; give the number of steps of the DAC as inp_res, twice that of levels on each side of 0, "
        "as 254");
  needs(!isBitSerial() || bound_management == BoundManagement::None, "bound_management",
        quoted(bound_management), "which reads smaller inputs again, but mv_type is ",
        quoted(mv_type),
        ", which drives every bit with the whole range; set bound_management = 'none', and "
        "out_bound to what the sum that the ADC converts may reach");
  needs(isBitSerial() || input_slice_bits == 1, "input_slice_bits", input_slice_bits,
        "which only bit-serial reads know, but mv_type is ", quoted(mv_type),
        "; set it to 1, or mv_type = 'bit_serial'");
  needs(out_nonlinearity == 0.0f || out_bound > 0.0f, "out_nonlinearity", out_nonlinearity,
        "relative to out_bound, which is 0 (unlimited); set out_bound");
  needs(slope_calibration == 0.0f || out_bound > 0.0f, "slope_calibration", slope_calibration,
        "relative to out_bound, which is 0 (unlimited); set out_bound");
  // No spread of n lies further out than seven standard deviations.
  const double most = out_bound > 0.0f ? double(out_nonlinearity) / double(out_bound) *
                                             (1.0 + 7.0 * double(out_nonlinearity_std))
                                       : 0.0;
  needs(outputGain(most) <= double(std::numeric_limits<float>::max()), "slope_calibration",
        slope_calibration, "with which the output's gain may become ", outputGain(most),
        ", more than single precision holds; use a smaller one");
  needs(1.0 / double(ir_drop_gw_div_gmax) <= kLargestSetting, "ir_drop_gw_div_gmax",
        ir_drop_gw_div_gmax, "which leaves wires no conductance; give at least ",
        1.0 / kLargestSetting);
  const bool arrayEffects =
      w_noise > 0.0f || ir_drop > 0.0f || v_offset_std > 0.0f || r_series > 0.0f;
  needs(mv_type != MvType::Ideal || !arrayEffects, "mv_type", quoted(mv_type),
        "an array without effects, but one of w_noise, ir_drop, v_offset_std and r_series is not "
        "0; set these to 0 or use 'one_pass'");
  checkWires(c);
}

void IOParameters::checkWires(const ParamsCheck &c) const {
  const IOParameters usual;
  if (wires == Wires::Formula) {
    const char *unused = wire_r_in != usual.wire_r_in       ? "wire_r_in"
                         : wire_r_out != usual.wire_r_out   ? "wire_r_out"
                         : wire_g_max != usual.wire_g_max   ? "wire_g_max"
                         : wire_sweeps != usual.wire_sweeps ? "wire_sweeps"
                                                            : nullptr;
    c.require(unused == nullptr, c.path(unused ? unused : "wires"), " is set, and ",
              c.path("wires"), " is 'formula', which does not use it; choose wires='solved', or ",
              "leave it away");
    return;
  }
  c.require(ir_drop == 0.0f, c.path("ir_drop"), " is ", ir_drop, ", and ", c.path("wires"),
            "='solved' has the drop of all wires; set ir_drop to 0");
  c.require(mv_type != MvType::Ideal, c.path("mv_type"),
            " is 'ideal', an array without effects, but ", c.path("wires"),
            " is 'solved'; use 'one_pass'");
  c.require(w_read_asymmetry_dtod == 0.0f, c.path("w_read_asymmetry_dtod"), " is ",
            w_read_asymmetry_dtod, ", and ", c.path("wires"),
            "='solved' has one conductance for each cell; set it to 0");
  const double most = double(kLargestSetting);
  for (const float ohm : {wire_r_in, wire_r_out}) {
    const double perCell = double(ohm) * double(wire_g_max) * 1e-6;
    c.require(perCell == 0.0 || (perCell <= 1e6 && perCell >= 1.0 / most), c.path("wires"),
              " is 'solved', and a wire of ", ohm, " Ohm at cells of ", wire_g_max, " uS has ",
              perCell, " of their resistance; give up to 1e6, or 0 Ohm");
  }
}

}  // namespace pulsora
