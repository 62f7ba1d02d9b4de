#pragma once

#include "parameters/field.h"
#include "parameters/limits.h"

namespace pulsora {

/// The rule for the scale alpha; a sample is divided by alpha before the DAC
/// (docs/reference/io.md).
enum class NoiseManagement { None, AbsMax, Max, Constant, AverageAbsMax, AbsMaxNPSum, InputRange };
template <>
struct EnumNames<NoiseManagement> {
  static constexpr const char *kNames[] = {
      "none", "abs_max", "max", "constant", "average_abs_max", "abs_max_np_sum", "input_range"};
};

/// The treatment of a sample whose read exceeded the range of the ADC.
enum class BoundManagement { None, Iterative, IterativeWorstCase };
template <>
struct EnumNames<BoundManagement> {
  static constexpr const char *kNames[] = {"none", "iterative", "iterative_worst_case"};
};

/// Read noise of the weights.
enum class WeightNoiseType { None, AdditiveConstant, PcmRead };
template <>
struct EnumNames<WeightNoiseType> {
  static constexpr const char *kNames[] = {"none", "additive_constant", "pcm_read"};
};

/// How many passes a read takes, and where they are added.
enum class MvType {
  Ideal,
  OnePass,
  PosNegSeparate,
  PosNegSeparateDigitalSum,
  BitSerial,
  BitSerialAnalogSum
};
template <>
struct EnumNames<MvType> {
  static constexpr const char *kNames[] = {"ideal",
                                           "one_pass",
                                           "pos_neg_separate",
                                           "pos_neg_separate_digital_sum",
                                           "bit_serial",
                                           "bit_serial_analog_sum"};
};

/// IR drop: by a formula for each output line, or by the currents of all wires of the array.
enum class Wires { Formula, Solved };
template <>
struct EnumNames<Wires> {
  static constexpr const char *kNames[] = {"formula", "solved"};
};

/// Periphery of one direction of reading an array. docs/reference/io.md has the order and the
/// formulas of these effects.
struct IOParameters {
  static constexpr const char *kName = "IOParameters";

  bool is_perfect = false;
  MvType mv_type = MvType::OnePass;

  float inp_bound = 1.0f;
  float inp_res = static_cast<float>(1.0 / 126.0);
  bool inp_sto_round = false;
  float inp_noise = 0.0f;
  float inp_asymmetry = 0.0f;
  int64_t input_slice_bits = 1;

  float out_bound = 12.0f;
  float out_res = static_cast<float>(1.0 / 510.0);
  bool out_sto_round = false;
  float out_noise = 0.06f;
  float out_noise_std = 0.0f;
  float out_asymmetry = 0.0f;
  float out_scale = 1.0f;

  NoiseManagement noise_management = NoiseManagement::AbsMax;
  float nm_thres = 0.0f;
  float nm_decay = 0.001f;
  float nm_assumed_wmax = 0.6f;

  BoundManagement bound_management = BoundManagement::Iterative;
  bool bm_backward = false;
  float max_bm_factor = 1000.0f;
  float max_bm_res = 0.25f;
  bool bm_test_negative_bound = true;

  float w_noise = 0.0f;
  WeightNoiseType w_noise_type = WeightNoiseType::None;
  float w_read_asymmetry_dtod = 0.0f;
  float ir_drop = 0.0f;
  float ir_drop_gw_div_gmax = 571428.57f;
  Wires wires = Wires::Formula;
  float wire_r_in = 0.35f;
  float wire_r_out = 0.35f;
  float wire_g_max = 25.0f;
  int wire_sweeps = 8;
  float v_offset_std = 0.0f;
  float v_offset_w_min = -1.0f;
  float r_series = 0.0f;
  float r_series_max_total = 0.0f;
  float out_nonlinearity = 0.0f;
  float out_nonlinearity_std = 0.0f;
  float slope_calibration = 0.0f;

  AutoInt weight_bits = AutoInt::byLibrary();

  /// Throws ConfigError if parameters contradict one another. Accepts anything for a perfect read,
  /// which ignores all other parameters.
  void check(const ParamsCheck &c) const;

  /// Distance between levels of the DAC (its input being scaled) and of the ADC; 0 is continuous.
  double inputStep() const;
  double outputStep() const;

  /// Gain of the output amplifier for a mean n of `meanBend` (see slope_calibration).
  double outputGain(double meanBend) const;

  /// How often bound management may double the scale of a sample: until the factor has reached
  /// max_bm_factor, or the DAC's resolution relative to the signal max_bm_res.
  int doublings() const;

  /// Whether reads need an input range that has not been set yet.
  bool lacksRange() const {
    return !is_perfect && noise_management == NoiseManagement::InputRange && nm_thres == 0.0f;
  }

  /// Bits of the weights in a product of integers: 24 or 16; 0 if the product is to be in floating
  /// point, or cannot be in integers (whyNoIntegers()).
  int integerBits() const;
  /// The property of these parameters because of which inputs are no integers of 15 bits; empty if
  /// they are.
  std::string whyNoIntegers() const;
  /// The property of these parameters because of which the levels of the DAC are no integers of 15
  /// bits; empty if they are.
  std::string whyNoLevels() const;
  /// The largest level of the DAC, of which the range is a whole number of steps.
  int32_t largestLevel() const;

  /// Whether the currents of the array's wires are solved.
  bool solvesWires() const { return !is_perfect && wires == Wires::Solved; }
  /// Conductance of the wire between two cells in units of a cell of weight 1; 0: no resistance.
  float wireOfInput() const { return wireOf(wire_r_in); }
  float wireOfOutput() const { return wireOf(wire_r_out); }

  /// Whether positive and negative inputs are read in separate passes.
  bool splitsSigns() const {
    return mv_type == MvType::PosNegSeparate || mv_type == MvType::PosNegSeparateDigitalSum;
  }

  /// Whether inputs are read slice by slice, each of input_slice_bits bits of a DAC level.
  bool readsSlices() const { return !is_perfect && isBitSerial(); }
  bool isBitSerial() const { return mv_type == MvType::BitSerial || addsSlices(); }
  /// Whether slices are added before the ADC.
  bool addsSlices() const { return mv_type == MvType::BitSerialAnalogSum; }
  /// Bits of the largest level of the DAC, and its slices.
  int levelBits() const;
  int sliceCount() const;
  /// The periphery with which one slice is read.
  IOParameters ofSlice() const;

  template <class Visitor>
  static void fields(Visitor &f) {
    inputFields(f);
    outputFields(f);
    managementFields(f);
    arrayFields(f);
  }

 private:
  using P = IOParameters;

  void checkWires(const ParamsCheck &c) const;
  float wireOf(float ohm) const {
    const double perCell = double(ohm) * double(wire_g_max) * 1e-6;  // uS
    return perCell > 0.0 ? static_cast<float>(1.0 / perCell) : 0.0f;
  }

  template <class Visitor>
  static void inputFields(Visitor &f) {
    f(&P::is_perfect, "is_perfect", anyNumber(), "",
      "Read exactly, as a floating-point matrix product; all other parameters are ignored.");
    f(&P::mv_type, "mv_type", anyNumber(), "",
      "'one_pass': all inputs at once; 'pos_neg_separate': positive and negative inputs in two "
      "reads that are added before the ADC; 'pos_neg_separate_digital_sum': added after it; "
      "'ideal': one pass through an array without effects of its own; 'bit_serial': the bits of "
      "DAC levels one after another, each in a read of its own, added after the ADC; "
      "'bit_serial_analog_sum': added before it.");
    f(&P::inp_bound, "inp_bound", nonNegative(), "scaled input",
      "Range of the DAC, +-inp_bound; 0 is unlimited.");
    f(&P::inp_res, "inp_res", nonNegative(), "of the range",
      "Step of the DAC over its range 2 inp_bound; 0 is continuous, a value above 1 is the number "
      "of steps.");
    f(&P::inp_sto_round, "inp_sto_round", anyNumber(), "", "Round stochastically in the DAC.");
    f(&P::inp_noise, "inp_noise", nonNegative(), "scaled input",
      "Standard deviation of the noise on each DAC output.");
    f(&P::inp_asymmetry, "inp_asymmetry", anyNumber(), "",
      "Negative DAC outputs are multiplied by 1 - inp_asymmetry.");
    f(&P::input_slice_bits, "input_slice_bits", between(1, 8), "bits",
      "'bit_serial' and 'bit_serial_analog_sum': bits of a DAC level that one read takes.");
  }

  template <class Visitor>
  static void outputFields(Visitor &f) {
    f(&P::out_bound, "out_bound", nonNegative(), "scaled output",
      "Range of the ADC, +-out_bound; 0 is unlimited.");
    f(&P::out_res, "out_res", nonNegative(), "of the range",
      "Step of the ADC over its range 2 out_bound; 0 is continuous, a value above 1 is the number "
      "of steps.");
    f(&P::out_sto_round, "out_sto_round", anyNumber(), "", "Round stochastically in the ADC.");
    f(&P::out_noise, "out_noise", nonNegative(), "scaled output",
      "Standard deviation of the noise before the ADC.");
    f(&P::out_noise_std, "out_noise_std", nonNegative(), "relative",
      "Spread of out_noise from output to output.");
    f(&P::out_asymmetry, "out_asymmetry", anyNumber(), "",
      "Negative sums are multiplied by 1 - out_asymmetry before the noise.");
    f(&P::out_scale, "out_scale", anyNumber(), "", "Digital factor on the result.");
    f(&P::out_nonlinearity, "out_nonlinearity", nonNegative(), "1",
      "Compression of the output stage, y / (1 + |n y|) with n = out_nonlinearity / out_bound.");
    f(&P::out_nonlinearity_std, "out_nonlinearity_std", nonNegative(), "relative",
      "Spread of out_nonlinearity from output to output.");
    f(&P::slope_calibration, "slope_calibration", nonNegative(), "",
      "Strength of the amplifier's compensation for the gain lost by out_nonlinearity and "
      "r_series: a factor (1 + (mean n + r_series) slope_calibration out_bound)^2.");
  }

  template <class Visitor>
  static void managementFields(Visitor &f) {
    f(&P::noise_management, "noise_management", anyNumber(), "",
      "Scale that a sample is divided by before the DAC: none, its largest absolute value, its "
      "largest value, nm_thres, a running mean of absolute maxima, the scale that keeps the "
      "sums of positive and of negative inputs within the ADC, or 'input_range', nm_thres as "
      "calibrated or learned.");
    f(&P::nm_thres, "nm_thres", nonNegative(), "input",
      "Scale of 'constant' and 'input_range'; upper limit of the scale of 'abs_max', 0 being "
      "none.");
    f(&P::nm_decay, "nm_decay", probability(), "",
      "Weight of a new sample in the running mean of 'average_abs_max'.");
    f(&P::nm_assumed_wmax, "nm_assumed_wmax", positive(), "weight",
      "Largest weight that 'abs_max_np_sum' and 'iterative_worst_case' assume.");
    f(&P::bound_management, "bound_management", anyNumber(), "",
      "Treatment of a sample that exceeds the ADC: clipped; read again with twice the scale "
      "until it fits; or read again once, with the scale of 'abs_max_np_sum'.");
    f(&P::bm_backward, "bm_backward", anyNumber(), "",
      "Whether bound management works in the backward direction too.");
    f(&P::max_bm_factor, "max_bm_factor", atLeast(1), "",
      "Factor at which the doubling of scales ends.");
    f(&P::max_bm_res, "max_bm_res", positive(), "",
      "Step of the DAC, relative to the largest input, at which the doubling of scales ends.");
    f(&P::bm_test_negative_bound, "bm_test_negative_bound", anyNumber(), "",
      "Whether an output below -out_bound is out of range; not needed where a rectifier follows.");
  }

  template <class Visitor>
  static void arrayFields(Visitor &f) {
    f(&P::w_noise, "w_noise", nonNegative(), "weight", "Strength of the read noise of weights.");
    f(&P::w_noise_type, "w_noise_type", anyNumber(), "",
      "'additive_constant': the same for every weight; 'pcm_read': grows with the square root of "
      "the weight.");
    f(&P::w_read_asymmetry_dtod, "w_read_asymmetry_dtod", nonNegative(), "relative",
      "Spread from cell to cell of the weight in reads of negative inputs.");
    f(&P::ir_drop, "ir_drop", nonNegative(), "",
      "Strength of the IR drop along a line; 1 is physical.");
    f(&P::ir_drop_gw_div_gmax, "ir_drop_gw_div_gmax", positive(), "",
      "Conductance of the wire between two cells over that of a cell of weight 1.");
    f(&P::wires, "wires", anyNumber(), "",
      "IR drop: 'formula', along output lines as ir_drop says; 'solved', the currents of all wires "
      "and cells (InferenceConfig and IdealConfig).");
    f(&P::wire_r_in, "wire_r_in", between(0.0, kLargestSetting), "Ohm",
      "'solved': resistance of an input line between two neighbouring cells.");
    f(&P::wire_r_out, "wire_r_out", between(0.0, kLargestSetting), "Ohm",
      "'solved': resistance of an output line between two neighbouring cells.");
    f(&P::wire_g_max, "wire_g_max", positive(), "uS",
      "'solved': conductance of a cell of weight 1.");
    f(&P::wire_sweeps, "wire_sweeps", between(1, 1000), "sweeps",
      "'solved': solutions of all output lines, between which the input lines are solved.");
    f(&P::v_offset_std, "v_offset_std", nonNegative(), "relative",
      "Spread of the voltage offsets of outputs; negative offsets count as 0.");
    f(&P::v_offset_w_min, "v_offset_w_min", nonPositive(), "weight",
      "Weight of the reference column of smallest conductance; 0 is a read without reference.");
    f(&P::r_series, "r_series", nonNegative(), "1/scaled output",
      "Series resistance of an output line.");
    f(&P::r_series_max_total, "r_series_max_total", nonNegative(), "",
      "Upper limit of r_series times the line's current; 0 is none.");
    f(&P::weight_bits, "weight_bits", between(16, 32), "bits",
      "Product of the read: in integers, of weights of 24 or 16 bits; 32 in floating point; "
      "'auto': 24 where inputs are levels and weights have bounds, else 32.",
      "auto");
  }
};

}  // namespace pulsora
