#pragma once

#include <cmath>

#include "array/device_model.h"
#include "compounds/compound_model.h"
#include "inference/compensation.h"
#include "inference/modifiers.h"
#include "inference/pulse_writing.h"
#include "inference/weight_slices.h"
#include "noise_models/cell_encoding.h"
#include "noise_models/noise_model_params.h"

namespace pulsora {

/// The weights that share a scale.
enum class ScalingPer { Output, Tile };
template <>
struct EnumNames<ScalingPer> {
  static constexpr const char *kNames[] = {"output", "tile"};
};

/// The rule by which layers limit their weights after a step of an optimiser.
enum class WeightClip { None, Fixed, Gaussian, GaussianPerOutput, AverageChannelMax, Learned };
template <>
struct EnumNames<WeightClip> {
  static constexpr const char *kNames[] = {
      "none", "fixed", "gaussian", "gaussian_per_output", "average_channel_max", "learned"};
};

/// When training reads draw a new change of the weights.
enum class ModifierEvery { Forward, Step };
template <>
struct EnumNames<ModifierEvery> {
  static constexpr const char *kNames[] = {"forward", "step"};
};

/// The gradient of an input range that is a parameter of a layer.
enum class RangeGradient { Clip, Lsq, OneSided };
template <>
struct EnumNames<RangeGradient> {
  static constexpr const char *kNames[] = {"clip", "lsq", "one_sided"};
};

/// Weights that are trained digitally, and programmed once into an array whose devices drift.
struct InferenceParams : CompoundBase {
  static constexpr const char *kKind = "inference";
  static constexpr const char *kName = "InferenceConfig";
  static constexpr const char *kDoc =
      "Weights that are trained digitally, then programmed once into an array whose devices drift.";
  static constexpr bool kPulses = false;

  NoiseModelParams noise_model;
  CellKind cell = CellKind::Pair;
  FloatList significance = listOf(1.0f);
  int weight_bits = 8;
  int slice_bits = 2;
  SliceConverters slice_converters = SliceConverters::Apart;
  FloatList table_w;
  FloatList table_g;
  CellReference cell_reference = CellReference::Digital;
  SingleSpan single_span = SingleSpan::Symmetric;
  int cell_bits = 0;
  float stuck_low = 0.0f;
  float stuck_high = 0.0f;
  ScalingPer scaling_per = ScalingPer::Output;
  float scaling_quantile = 1.0f;
  WriteKind write = WriteKind::Model;
  DeviceParams device;
  float write_tolerance = 0.02f;
  int write_rounds = 64;
  int write_max_pulses = 1000;
  float read_window = 0.0f;
  Compensation compensation = Compensation::Global;
  CompensationRead compensation_read = CompensationRead::Converters;
  Modifier modifier = Modifier::None;
  float modifier_std = 0.05f;
  ScalingPer modifier_per = ScalingPer::Output;
  float modifier_range = 0.0f;
  float modifier_res = 0.0f;
  bool modifier_sto_round = false;
  float modifier_clip = 0.6f;
  FloatList modifier_coeff = listOf(0.26348f, 1.9650f, -1.1731f);
  float modifier_g_max = 25.0f;
  FloatList modifier_times = listOf(1.0f, 31536000.0f);
  float drop_connect = 0.0f;
  ModifierEvery modifier_every = ModifierEvery::Forward;
  WeightClip clip = WeightClip::None;
  float clip_sigma = 2.5f;
  float clip_value = 0.0f;
  RangeGradient range_gradient = RangeGradient::Clip;
  float range_decay = 0.001f;
  float range_inside = 0.95f;

  static TilePeriphery defaults() {
    TilePeriphery s;
    s.backward.is_perfect = true;
    return s;
  }
  template <class Visitor>
  static void fields(Visitor &f) {
    arrayFields(f);
    trainingFields(f);
  }
  template <class Visitor>
  static void arrayFields(Visitor &f) {
    using P = InferenceParams;
    f(&P::noise_model, "noise_model", anyNumber(), "",
      "Programming error, drift and read noise of a device.");
    f(&P::cell, "cell", anyNumber(), "",
      "Devices of a weight: 'pair', one of which is at g_min; 'two_sided_pair', both of which "
      "carry half of it; 'pairs' of the factors `significance`; 'single', against a reference; "
      "'slices', a pair for each digit of the weight; 'table', a pair of which each device follows "
      "a table.");
    f(&P::significance, "significance", positive(), "",
      "Factors of the pairs of cell='pairs', in the order in which they are filled; at most 8.");
    f(&P::weight_bits, "weight_bits", between(2, 16), "",
      "Bits of a weight of cell='slices', its sign included.");
    f(&P::slice_bits, "slice_bits", between(1, 8), "",
      "Bits of each slice of cell='slices'; a divisor of weight_bits.");
    f(&P::slice_converters, "slice_converters", anyNumber(), "",
      "Converters of cell='slices': each slice has its own, and the slices are added digitally "
      "('apart'); or they are added before one ADC ('shared').");
    f(&P::table_w, "table_w", between(-1.0, 1.0), "",
      "Weights of the nodes of cell='table', relative to the scale: ascending from -1 to 1.");
    f(&P::table_g, "table_g", between(0.0, 1.0), "",
      "Targets of cell='table' at these nodes, as shares of the range of conductances: of the "
      "device that adds, then of the device that is subtracted. Their difference is proportional "
      "to the weight.");
    f(&P::cell_reference, "cell_reference", anyNumber(), "",
      "Reference of cell='single': 'digital', half of the sum of the inputs is subtracted exactly; "
      "'column', by a column of cells at half of the range, programmed as well.");
    f(&P::single_span, "single_span", anyNumber(), "",
      "Weights of cell='single' at g_min and g_max: minus and plus the largest magnitude "
      "('symmetric'), or the smallest and the largest weight of those that share a scale "
      "('data'), by AIHWKit's rule.");
    f(&P::cell_bits, "cell_bits", between(0, 16), "",
      "Bits of a target conductance; 0 is continuous.");
    f(&P::stuck_low, "stuck_low", probability(), "",
      "Share of devices that stay at g_min; a property of the chip.");
    f(&P::stuck_high, "stuck_high", probability(), "", "Share of devices that stay at g_max.");
    f(&P::scaling_per, "scaling_per", anyNumber(), "",
      "Weights whose largest magnitude uses the whole range of a cell: of each 'output', or of the "
      "'tile'.");
    f(&P::scaling_quantile, "scaling_quantile", Range{0.0, 1.0, true, false}, "",
      "Share of these weights that the range holds; weights beyond it are clipped. 1 is the "
      "largest magnitude.");
    f(&P::write, "write", anyNumber(), "",
      "Programming: with the error of the noise model ('model'), or by pulses on cells of `device` "
      "that are read and pulsed until they lie at their targets ('pulses').");
    f(&P::device, "device", anyNumber(), "",
      "Device model of write='pulses'; g_min and g_max lie at its mean bounds.");
    f(&P::write_tolerance, "write_tolerance", Range{0.0, 1.0, true, false}, "of the range",
      "Largest difference of a cell from its target at which write='pulses' leaves it.");
    f(&P::write_rounds, "write_rounds", between(1, 1000), "rounds",
      "Most rounds of write='pulses', each a read and pulses.");
    f(&P::write_max_pulses, "write_max_pulses", between(1, 1000000), "pulses",
      "Most pulses of a cell in the first round of write='pulses'; half as many in the second, a "
      "third in the third.");
    f(&P::read_window, "read_window", nonNegative(), "s",
      "Time that separates 1/f noise: what is slower is frozen in the conductances, what is faster "
      "is drawn by each read; 0 freezes all of it.");
    f(&P::compensation, "compensation", anyNumber(), "",
      "Compensation of drift after programming: one factor from one-hot reads for the tile "
      "('global') or for each output ('per_output'), relative to the reads at time 0 or, "
      "'exact_reference', to the weights themselves; or 'none'.");
    f(&P::compensation_read, "compensation_read", anyNumber(), "",
      "The one-hot reads of the compensation: through the 'converters' of the forward read with "
      "their noise, or 'exact'.");
  }
  template <class Visitor>
  static void trainingFields(Visitor &f) {
    using P = InferenceParams;
    f(&P::modifier, "modifier", anyNumber(), "",
      "Change of the weights in training reads, drawn anew for each mini-batch and seen by its "
      "backward read too; 'noise_model': programming, drift to a time of modifier_times, read "
      "noise and compensation as in inference.");
    f(&P::modifier_std, "modifier_std", between(0.0, kLargestSetting), "relative",
      "Strength of a modifier's noise.");
    f(&P::modifier_per, "modifier_per", anyNumber(), "",
      "Weights whose largest magnitude a modifier refers to: of each 'output', or of the 'tile'.");
    f(&P::modifier_range, "modifier_range", between(0.0, kLargestSetting), "weight",
      "Magnitude that a modifier refers to instead; 0 takes the largest weight.");
    f(&P::modifier_res, "modifier_res", between(0.0, 1.0), "relative",
      "Distance of the levels of 'discretize', relative to the largest weight, and of 'dorefa'.");
    f(&P::modifier_sto_round, "modifier_sto_round", anyNumber(), "",
      "Whether 'discretize' rounds stochastically.");
    f(&P::modifier_clip, "modifier_clip", between(0.0, kLargestSetting), "weight",
      "Largest weight after 'dorefa'.");
    f(&P::modifier_coeff, "modifier_coeff", between(-kLargestSetting, kLargestSetting), "",
      "Coefficients of 'poly' and 'prog_noise' over |W| relative to the largest weight.");
    f(&P::modifier_g_max, "modifier_g_max", Range{0.0, kLargestSetting, true, false}, "uS",
      "Largest conductance to which the coefficients of 'prog_noise' belong.");
    f(&P::modifier_times, "modifier_times", Range{0.0, kLargestSetting, true, false}, "s",
      "Smallest and largest time of 'noise_model'; the logarithm of the time is uniform.");
    f(&P::drop_connect, "drop_connect", Range{0.0, 1.0, false, true}, "",
      "Probability that a training read sees a weight as 0; below 1.");
    f(&P::modifier_every, "modifier_every", anyNumber(), "",
      "When training reads draw the change of the weights anew: in each mini-batch ('forward'), or "
      "once the weights have changed ('step'), so that all mini-batches of a step see the same.");
    f(&P::clip, "clip", anyNumber(), "",
      "Limit of the weights of a layer after each step of an optimiser: 'fixed', clip_value; "
      "'gaussian', clip_sigma standard deviations of the layer, or of each output "
      "('gaussian_per_output'); 'average_channel_max', the mean of the outputs' largest "
      "magnitudes; 'learned', a parameter weight_clip of the layer for each output.");
    f(&P::clip_sigma, "clip_sigma", between(0.0, kLargestSetting), "",
      "Standard deviations within which 'gaussian' leaves the weights, and from which 'learned' "
      "starts.");
    f(&P::clip_value, "clip_value", between(0.0, kLargestSetting), "weight",
      "Limit of 'fixed'; an upper limit of the others, unless 0.");
    f(&P::range_gradient, "range_gradient", anyNumber(), "",
      "Gradient of an input range that is learned: of a 'clip'; with the rounding of the inputs "
      "too, 'lsq'; or 'one_sided', by which inputs only widen the range, and it decays.");
    f(&P::range_decay, "range_decay", between(0.0, 1.0), "",
      "Gradient of 'one_sided', relative to the range, while enough inputs are within it.");
    f(&P::range_inside, "range_inside", between(0.0, 1.0), "",
      "Share of the inputs within the range above which 'one_sided' lets it decay.");
  }
  template <class Check>
  void check(const Check &c) const {
    const bool rounds = modifier == Modifier::Discretize ||
                        modifier == Modifier::DiscretizeAddNormal || modifier == Modifier::DoReFa;
    c.require(!rounds || modifier_res > 0.0f, c.path("modifier_res"),
              " is 0, and the modifier rounds to levels; give their distance, for example 0.01");
    c.require(clip != WeightClip::Fixed || clip_value > 0.0f, c.path("clip_value"), " is 0 with ",
              c.path("clip"), "='fixed'; give the largest weight");
    const bool clipsBySigma = clip == WeightClip::Gaussian ||
                              clip == WeightClip::GaussianPerOutput || clip == WeightClip::Learned;
    c.require(!clipsBySigma || clip_sigma > 0.0f, c.path("clip_sigma"), " is 0, so that ",
              c.path("clip"), " would set all weights to 0; give standard deviations, such as 2.5");
    const bool isPolynomial = modifier == Modifier::Poly || modifier == Modifier::ProgNoise;
    c.require(!isPolynomial || modifier_coeff.count > 0, c.path("modifier_coeff"),
              " has no numbers, and the noise of the modifier is their polynomial; give some, or "
              "leave it away");
    c.require(modifier_times.count == 2 && modifier_times.values[0] <= modifier_times.values[1],
              c.path("modifier_times"), " must be two times, the smaller one first");
    c.require(modifier != Modifier::NoiseModel ||
                  static_cast<double>(modifier_times.values[1]) <= noise_model.lastTime(),
              c.path("modifier_times"), "[1] is ", modifier_times.values[1], " s, but ",
              c.path("noise_model"), " has numbers up to ", noise_model.lastTime(),
              " s; give an earlier time, or set extrapolate=True in the noise model");
    c.require(significance.count >= 1 && 2 * significance.count <= CellEncoding::kMostDevices,
              c.path("significance"), " has ", significance.count,
              " entries; give the factors of 1 to ", CellEncoding::kMostDevices / 2, " pairs");
    c.require(cell == CellKind::Pairs || significance.count == 1, c.path("significance"), " has ",
              significance.count, " entries, and ", c.path("cell"),
              " has one pair at most; choose cell='pairs'");
    checkSlices(c);
    checkTable(c);
    checkWrite(c);
    c.require(modifier_every == ModifierEvery::Forward || modifies(), c.path("modifier_every"),
              " is 'step', and no modifier or drop_connect changes the weights; leave it away");
    const InferenceParams usual;
    const bool decays = range_gradient == RangeGradient::OneSided;
    c.require(decays || range_decay == usual.range_decay, c.path("range_decay"), " is ",
              range_decay, ", and only ", c.path("range_gradient"),
              "='one_sided' decays; choose that, or leave it away");
    c.require(decays || range_inside == usual.range_inside, c.path("range_inside"), " is ",
              range_inside, ", and only ", c.path("range_gradient"),
              "='one_sided' decays; choose that, or leave it away");
    c.require(cell == CellKind::Single || cell_reference == CellReference::Digital,
              c.path("cell_reference"),
              " is 'column', and cells of pairs need no reference; choose cell='single'");
    c.require(cell == CellKind::Single || single_span == SingleSpan::Symmetric,
              c.path("single_span"), " is 'data', and ", c.path("cell"),
              " has more than one device; choose cell='single'");
    const double shortest = 2.0 * noise_model.readDuration();
    c.require(read_window == 0.0f || shortest > 0.0, c.path("read_window"), " is ", read_window,
              " s, but ", c.path("noise_model"), ", ", noise_model.model().name,
              ", has no 1/f noise; leave it at 0");
    c.require(read_window == 0.0f || static_cast<double>(read_window) >= shortest,
              c.path("read_window"), " is ", read_window, " s, shorter than two reads of ",
              c.path("noise_model"), "; give ", shortest, " s at least, or 0 to freeze all noise");
    c.require(read_window == 0.0f || cell_reference == CellReference::Digital,
              c.path("read_window"), " is ", read_window, " s, and ", c.path("cell_reference"),
              " is 'column', whose noise all outputs share; choose 'digital', or leave it at 0");
    c.require(stuck_low + stuck_high <= 1.0f, c.path("stuck_low"), " and ", c.path("stuck_high"),
              " are ", stuck_low, " and ", stuck_high, "; their sum must be <= 1");
  }
  template <class Check>
  void checkSlices(const Check &c) const {
    const InferenceParams usual;
    if (cell != CellKind::Slices) {
      const char *unused = weight_bits != usual.weight_bits             ? "weight_bits"
                           : slice_bits != usual.slice_bits             ? "slice_bits"
                           : slice_converters != usual.slice_converters ? "slice_converters"
                                                                        : nullptr;
      c.require(unused == nullptr, c.path(unused ? unused : "cell"), " is set, and ",
                c.path("cell"), " has no slices; choose cell='slices', or leave it away");
      return;
    }
    c.require(weight_bits % slice_bits == 0, c.path("slice_bits"), " is ", slice_bits,
              ", which does not divide ", c.path("weight_bits"), ", ", weight_bits,
              "; give a divisor, such as 1");
    c.require(weightDigits(weight_bits, slice_bits).count > 1, c.path("slice_bits"), " is ",
              slice_bits, ", and one slice holds all of the ", weight_bits, " bits of ",
              c.path("weight_bits"), "; give fewer, or cell='pair' with cell_bits");
    c.require(cell_bits == 0, c.path("cell_bits"), " is ", cell_bits, ", and the levels of ",
              c.path("cell"), "='slices' follow from ", c.path("slice_bits"), "; leave it at 0");
  }
  template <class Check>
  void checkTable(const Check &c) const {
    const int n = table_w.count;
    if (cell != CellKind::Table) {
      c.require(n == 0 && table_g.count == 0, c.path(n > 0 ? "table_w" : "table_g"),
                " is set, and ", c.path("cell"),
                " follows no table; choose cell='table', or leave it away");
      return;
    }
    c.require(n >= 2 && table_w.values[0] == -1.0f && table_w.values[n - 1] == 1.0f,
              c.path("table_w"), " has ", n,
              " entries that do not reach from -1 to 1; give the nodes of ", c.path("cell"),
              "='table', such as [-1, 0, 1]");
    for (int i = 1; i < n; ++i)
      c.require(table_w.values[i] > table_w.values[i - 1], c.path("table_w"), "[", i, "] is ",
                table_w.values[i], ", after ", table_w.values[i - 1], "; nodes must ascend");
    c.require(table_g.count == 2 * n, c.path("table_g"), " has ", table_g.count, " entries; give ",
              2 * n, ", one for each node of ", c.path("table_w"), " and device of the pair");
    const float whole = tableDifference(n - 1);
    c.require(whole >= 1e-3f, c.path("table_g"), " gives the difference ", whole,
              " of the devices to the weight 1; give the device that adds more than the other");
    for (int i = 0; i < n; ++i)
      c.require(std::abs(tableDifference(i) - whole * table_w.values[i]) <= 1e-4f,
                c.path("table_g"), " does not give weights back: at ", c.path("table_w"), " = ",
                table_w.values[i], " the devices differ by ", tableDifference(i), ", but need ",
                whole * table_w.values[i], "; let them differ in proportion to the weight");
  }
  template <class Check>
  void checkWrite(const Check &c) const {
    const InferenceParams usual;
    if (write == WriteKind::Model) {
      const char *unused = !(device.write() == usual.device.write())    ? "device"
                           : write_tolerance != usual.write_tolerance   ? "write_tolerance"
                           : write_rounds != usual.write_rounds         ? "write_rounds"
                           : write_max_pulses != usual.write_max_pulses ? "write_max_pulses"
                                                                        : nullptr;
      c.require(unused == nullptr, c.path(unused ? unused : "write"), " is set, and ",
                c.path("write"), " is 'model', which sends no pulses; choose write='pulses', or ",
                "leave it away");
      return;
    }
    c.require(cell_reference == CellReference::Digital, c.path("cell_reference"),
              " is 'column', and ", c.path("write"),
              "='pulses' writes the cells of weights alone; choose 'digital'");
    c.require(modifier != Modifier::NoiseModel, c.path("modifier"), " is 'noise_model', and ",
              c.path("write"), "='pulses' would pulse all cells in each mini-batch; choose ",
              "modifier='add_normal', or write='model' for training");
  }
  /// The difference of the devices of a table at a node.
  float tableDifference(int i) const {
    return table_g.values[i] - table_g.values[table_w.count + i];
  }
  /// The parts of a weight; of none, if all of its devices are one array.
  WeightParts parts() const {
    if (cell == CellKind::Slices) return weightDigits(weight_bits, slice_bits);
    return cell == CellKind::Table ? tableParts(tableDifference(table_w.count - 1)) : WeightParts{};
  }
  CompoundFacts facts() const {
    CompoundFacts facts;
    facts.pulsesWritten = false;
    facts.digitalWeight = true;
    return facts;
  }
  /// Whether training reads see changed weights.
  bool modifies() const { return modifier != Modifier::None || drop_connect > 0.0f; }
  std::unique_ptr<AnalogDevice> make(const CompoundSite &site) const;
};

}  // namespace pulsora
