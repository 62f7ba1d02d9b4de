#pragma once

#include "compounds/compound_model.h"
#include "compounds/reference.h"
#include "compounds/retention_parameters.h"
#include "compounds/vector.h"

namespace pulsora {

/// The cells of a weight that follows a digital one.
enum class FollowingCells { Single, Vector, Reference, OneSided };
template <>
struct EnumNames<FollowingCells> {
  static constexpr const char *kNames[] = {"single", "vector", "reference", "one_sided"};
};

/// Cells that follow a digital weight by counted pulses: mixed-precision training. Definition:
/// docs/reference/mixed_precision.md.
struct MixedPrecisionParams : CompoundBase, RetentionParams {
  static constexpr const char *kKind = "mixed_precision";
  static constexpr const char *kName = "MixedPrecisionConfig";
  static constexpr const char *kDoc =
      "Cells that follow a digital weight by counted pulses (mixed precision): any optimiser "
      "trains "
      "the digital weight, and a cell is pulsed where it lags by a whole step.";

  DeviceParams visible;
  FollowingCells cells = FollowingCells::Single;
  DeviceList others;
  FloatList gamma_vec;
  UpdatePolicy update_policy = UpdatePolicy::All;
  DeviceParams reference;
  ReferenceStart reference_start = ReferenceStart::SymmetricPoint;
  int reference_pulses = 0;
  int64_t refresh_every = 1;
  float refresh_upper_thres = 0.75f;
  float refresh_lower_thres = 0.25f;
  GroupIo read_io = GroupIo::Shared;
  bool digital_weight = true;
  float granularity = 0.0f;
  float transfer_lr = 1.0f;
  int64_t transfer_every = 1;
  int64_t n_rows_per_transfer = 0;
  bool random_row = false;
  int bl_max = 31;
  bool exact_counts = true;
  int n_x_bins = 0;
  int n_d_bins = 0;
  bool stoc_round_x = true;
  bool stoc_round_d = true;

  template <class Visitor>
  static void fields(Visitor &f) {
    cellFields(f);
    pulseFields(f);
    RetentionParams::fields(f);
  }
  template <class Visitor>
  static void cellFields(Visitor &f) {
    using P = MixedPrecisionParams;
    f(&P::visible, "visible", anyNumber(), "",
      "Device model of the array that follows; of the first one with cells = 'vector', of both "
      "with 'one_sided'.");
    f(&P::cells, "cells", anyNumber(), "",
      "Arrays of the weight: a 'single' one; a 'vector' of `visible` and `others`; 'reference', "
      "`visible` less an array of references; 'one_sided', two arrays that are pulsed up alone.");
    f(&P::others, "others", anyNumber(), "",
      "Device models of the arrays after the first, with cells = 'vector'.");
    f(&P::gamma_vec, "gamma_vec", anyNumber(), "",
      "Factors of the arrays in the weight, with cells = 'vector'; empty is 1/n for each of n.");
    f(&P::update_policy, "update_policy", anyNumber(), "",
      "The arrays that a row of pulses goes to, with cells = 'vector': 'all', with the same "
      "numbers; 'single_fixed', the first; 'single_sequential', in turn; 'single_random'.");
    f(&P::reference, "reference", anyNumber(), "",
      "Device model of the references, with cells = 'reference'.");
    f(&P::reference_start, "reference_start", anyNumber(), "",
      "What references are programmed to when a tile is made: 'zero', or the 'symmetric_point' of "
      "each cell. Tile.calibrate() programs them later.");
    f(&P::reference_pulses, "reference_pulses", between(0, 100000), "pulse pairs",
      "Pairs of a pulse up and one down that find the symmetric point; 0 is exact.");
    f(&P::refresh_every, "refresh_every", between(0, 1e15), "mini-batches",
      "Mini-batches per refresh of pairs, with cells = 'one_sided'; 0 is never.");
    f(&P::refresh_upper_thres, "refresh_upper_thres", nonNegative(), "relative",
      "A pair is refreshed if the larger of its conductances is above this share of w_max, and the "
      "smaller one above refresh_lower_thres.");
    f(&P::refresh_lower_thres, "refresh_lower_thres", nonNegative(), "relative",
      "See refresh_upper_thres.");
    f(&P::read_io, "read_io", anyNumber(), "", kGroupIoDoc);
  }
  template <class Visitor>
  static void pulseFields(Visitor &f) {
    using P = MixedPrecisionParams;
    f(&P::digital_weight, "digital_weight", anyNumber(), "",
      "Whether layers hold the digital weight as a parameter of torch, which any optimiser trains; "
      "otherwise the tile adds up the outer products of updates.");
    f(&P::granularity, "granularity", nonNegative(), "weight",
      "Lag of a cell that is sent as one unit; 0 is the mean change of the weight by a pulse.");
    f(&P::transfer_lr, "transfer_lr", positive(), "",
      "Factor on what is sent: a unit is granularity * transfer_lr in pulses, rounded at random "
      "where that is no whole number.");
    f(&P::transfer_every, "transfer_every", between(0, 1e15), "mini-batches",
      "Mini-batches per transfer; 0 is never.");
    f(&P::n_rows_per_transfer, "n_rows_per_transfer", atLeast(0), "rows",
      "Rows that a transfer sends, one after another; 0 is all.");
    f(&P::random_row, "random_row", anyNumber(), "",
      "Draw the first row of each transfer; otherwise rows follow one another.");
    f(&P::bl_max, "bl_max", between(1, 65536), "pulses",
      "Most pulses of a cell in a transfer; the rest is sent later.");
    f(&P::exact_counts, "exact_counts", anyNumber(), "",
      "Whether each cell gets its number of pulses; otherwise each row is sent by the pulse trains "
      "of `update`, with both managements, which deliver it in the mean.");
    f(&P::n_x_bins, "n_x_bins", between(0, 65536), "levels",
      "Levels of x in the outer products of updates, relative to the largest |x| of the sample; 0 "
      "is exact.");
    f(&P::n_d_bins, "n_d_bins", between(0, 65536), "levels", "Levels of d; see n_x_bins.");
    f(&P::stoc_round_x, "stoc_round_x", anyNumber(), "",
      "Whether x is rounded to its levels at random, with the right mean.");
    f(&P::stoc_round_d, "stoc_round_d", anyNumber(), "",
      "Whether d is rounded to its levels at random.");
  }

  void check(const ParamsCheck &c) const;
  /// Settings as a state of any version holds them, without those that have no effect.
  static Value::Map fromSaved(Value::Map own);
  CompoundFacts facts() const;
  std::unique_ptr<AnalogDevice> make(const CompoundSite &site) const;
  static std::vector<CompoundVariant> variants();
  /// The device whose arrays follow.
  std::unique_ptr<CountedDevice> makeCells(const CompoundSite &site) const;
};

}  // namespace pulsora
