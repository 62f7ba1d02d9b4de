#pragma once

#include "compounds/compound_model.h"
#include "compounds/retention_parameters.h"
#include "transfer/line_rule.h"

namespace pulsora {

/// A periphery for reads of single lines: converters and noise, no management of inputs or bounds.
IOParameters lineReads();

/// A chain of arrays that act as one weight: Tiki-Taka and its successors. Gradients are pulsed
/// onto a fast array, whose lines are read one after another and written onto the next array.
/// Definition: docs/reference/transfers.md.
struct TransferParams : CompoundBase, FastRetentionParams {
  static constexpr const char *kKind = "transfer";
  static constexpr const char *kName = "TransferConfig";
  static constexpr const char *kDoc =
      "A chain of arrays that act as one weight (Tiki-Taka and its successors): gradients are "
      "pulsed onto a fast array, whose lines are read one by one and written onto the next array.";

  DeviceParams visible;
  DeviceList fast;
  TransferBuffer buffer = TransferBuffer::None;
  float gamma = 0.0f;
  FloatList gamma_vec;
  float transfer_every = 1.0f;
  FloatList transfer_every_vec;
  bool units_in_mbatch = true;
  int64_t n_reads_per_transfer = 1;
  bool transfer_columns = true;
  bool random_selection = false;
  float with_reset_prob = 0.0f;
  float fast_lr = 1.0f;
  bool scale_fast_lr = true;
  float transfer_lr = 1.0f;
  FloatList transfer_lr_vec;
  bool scale_transfer_lr = true;
  IOParameters transfer_forward = lineReads();
  UpdateParameters transfer_update;
  float thres_scale = 1.0f;
  float step = 1.0f;
  float momentum = 0.1f;
  bool forget_buffer = true;
  float in_chop_prob = 0.1f;
  bool in_chop_random = true;
  float out_chop_prob = 0.0f;
  bool no_buffer = false;
  float buffer_granularity = 1.0f;
  float auto_granularity = 0.0f;
  bool auto_scale = false;
  float auto_momentum = 0.99f;
  bool correct_gradient_magnitudes = false;
  float tail_weightening = 5.0f;
  float buffer_cap = 0.0f;
  bool correct_accumulation = false;

  template <class Visitor>
  static void fields(Visitor &f) {
    using P = TransferParams;
    f(&P::visible, "visible", anyNumber(), "",
      "Device model of the slowest array, which is last in the chain and holds written weights.");
    f(&P::fast, "fast", anyNumber(), "",
      "Device models of the other arrays, the fastest first: it gets the pulses of gradients.");
    f(&P::buffer, "buffer", anyNumber(), "",
      "What collects reads before they are written: 'none' (Tiki-Taka v1), 'sum' (v2), 'chopped' "
      "(c-TTv2), 'dynamic' (AGAD).");
    f(&P::gamma, "gamma", anyNumber(), "",
      "Array k of n, 0 being the fastest, adds gamma^(n - 1 - k) of its weight to W; with 0, W is "
      "the visible array.");
    f(&P::gamma_vec, "gamma_vec", anyNumber(), "",
      "The factor of each array in W, the fastest first; empty: see gamma.");
    f(&P::transfer_every, "transfer_every", anyNumber(), "mini-batches",
      "Mini-batches (or samples, see units_in_mbatch) per transfer from the fastest array; 0 is "
      "never. Later arrays wait until all lines of the one before were read. With buffer = "
      "'chopped' or 'dynamic', -p counts samples: all lines are read once while a cell of the "
      "fastest array could take p times the pulses of its range.");
    f(&P::transfer_every_vec, "transfer_every_vec", anyNumber(), "mini-batches",
      "The period of each array but the last; empty: see transfer_every.");
    f(&P::units_in_mbatch, "units_in_mbatch", anyNumber(), "",
      "Whether periods count mini-batches; otherwise they count samples (in a convolution, one "
      "per pixel of the output).");
    f(&P::n_reads_per_transfer, "n_reads_per_transfer", atLeast(1), "lines",
      "Lines that a transfer reads and writes.");
    f(&P::transfer_columns, "transfer_columns", anyNumber(), "",
      "Whether lines are columns (inputs), read forward; otherwise rows, read backward.");
    f(&P::random_selection, "random_selection", anyNumber(), "",
      "Draw the first line of each transfer; otherwise lines follow one another.");
    f(&P::with_reset_prob, "with_reset_prob", probability(), "",
      "Probability with which a cell of a line is reset after the line was read.");
    f(&P::fast_lr, "fast_lr", nonNegative(), "",
      "Learning rate of the fastest array, in units of the tile's with scale_fast_lr; 0 is the "
      "tile's. With auto_scale: pulses of its largest gradients per slot.");
    f(&P::scale_fast_lr, "scale_fast_lr", anyNumber(), "",
      "Whether fast_lr is multiplied by the tile's learning rate.");
    f(&P::transfer_lr, "transfer_lr", nonNegative(), "",
      "Factor with which reads are written, in units of the tile's learning rate with "
      "scale_transfer_lr.");
    f(&P::transfer_lr_vec, "transfer_lr_vec", nonNegative(), "",
      "The factor of each array but the last; empty: see transfer_lr.");
    f(&P::scale_transfer_lr, "scale_transfer_lr", anyNumber(), "",
      "Whether transfer_lr is multiplied by the tile's learning rate.");
    f(&P::transfer_forward, "transfer_forward", anyNumber(), "",
      "Periphery of the reads of lines; one line is driven with 1.");
    f(&P::transfer_update, "transfer_update", anyNumber(), "",
      "Writes of lines. With buffer = 'none', pulse trains of the reads; otherwise desired_bl is "
      "the most pulses of one write, which are counted. The pulse types 'none' and "
      "'none_with_device' write digitally, within the bounds of cells.");
    f(&P::thres_scale, "thres_scale", positive(), "",
      "Buffer 'sum': change that is written as one pulse, in units of dw_min of the written "
      "array.");
    f(&P::step, "step", Range{0.0, 1.0, true, false}, "",
      "Buffers: probability of each pulse that leaves the buffer.");
    f(&P::momentum, "momentum", between(0.0, 1.0), "",
      "Buffers: part that stays in the buffer after a write.");
    f(&P::forget_buffer, "forget_buffer", anyNumber(), "",
      "Buffers: whether a write leaves only the part `momentum` of the buffer; otherwise it takes "
      "the written pulses out, but for that part of them.");
    f(&P::in_chop_prob, "in_chop_prob", probability(), "",
      "Choppers: probability with which the sign of a line changes after its read, or with "
      "in_chop_random = False the inverse of the number of reads between changes.");
    f(&P::in_chop_random, "in_chop_random", anyNumber(), "",
      "Choppers: whether signs of lines change at random.");
    f(&P::out_chop_prob, "out_chop_prob", probability(), "",
      "Choppers: probability with which a sign of the other side changes after all lines were "
      "read.");
    f(&P::no_buffer, "no_buffer", anyNumber(), "",
      "Choppers: whether what a read does not write is dropped.");
    f(&P::buffer_granularity, "buffer_granularity", nonNegative(), "",
      "Choppers: sum of reads that is written as one pulse, in units of dw_min of the fastest "
      "array and of 1 / transfer_lr; 0 is 1.");
    f(&P::auto_granularity, "auto_granularity", nonNegative(), "samples",
      "Choppers: number of samples that buffer_granularity belongs to; the threshold follows "
      "the number of samples between two reads of a line. 0: it does not.");
    f(&P::auto_scale, "auto_scale", anyNumber(), "",
      "Choppers: whether the learning rate of the fastest array follows from running maxima of "
      "|x| and |d|, so that the largest gradients send fast_lr times desired_bl pulses.");
    f(&P::auto_momentum, "auto_momentum", between(0.0, 1.0), "",
      "auto_scale: part of a running maximum that stays over a mini-batch.");
    f(&P::correct_gradient_magnitudes, "correct_gradient_magnitudes", anyNumber(), "",
      "Choppers: whether reads are divided by the learning rate of the fastest array and the "
      "ratio of the two steps, so that writes have the size of gradients.");
    f(&P::tail_weightening, "tail_weightening", positive(), "",
      "Buffer 'dynamic': weight of a read in the running mean, in units of the inverse number of "
      "reads between changes of sign; at most that number.");
    f(&P::buffer_cap, "buffer_cap", nonNegative(), "",
      "Buffer 'dynamic' with forget_buffer = False: limit of the buffer after a write, in units of "
      "desired_bl pulses; 0 is none.");
    f(&P::correct_accumulation, "correct_accumulation", anyNumber(), "",
      "Buffer 'dynamic': whether reads are divided by their number since the line changed its "
      "sign.");
    FastRetentionParams::fields(f);
  }

  void check(const ParamsCheck &c) const;
  static std::vector<CompoundVariant> variants();
  static Value::Map fromSaved(Value::Map own);
  CompoundFacts facts() const;
  std::unique_ptr<AnalogDevice> make(const CompoundSite &site) const;

  static constexpr int64_t kMostArrays = 8;
  /// Number n of arrays, the visible one included.
  int64_t arrays() const { return static_cast<int64_t>(fast.size()) + 1; }
  /// Period of the transfers from the fastest array, as transfer_every.
  float firstPeriod() const {
    return transfer_every_vec.count > 0 ? transfer_every_vec.values[0] : transfer_every;
  }
  /// Factor of array k, 0 being the fastest, in W.
  float weightOf(int64_t k) const;
};

}  // namespace pulsora
