#pragma once

#include "compounds/compound_model.h"
#include "compounds/retention_parameters.h"
#include "transfer/transfer_rule.h"

namespace pulsora {

enum class LrScale { Alpha, None, Matched };
template <>
struct EnumNames<LrScale> {
  static constexpr const char *kNames[] = {"alpha", "none", "matched"};
};
enum class RankScaling { None, RsLora };
template <>
struct EnumNames<RankScaling> {
  static constexpr const char *kNames[] = {"none", "rslora"};
};
enum class InjectIo { PerArray, Shared };
template <>
struct EnumNames<InjectIo> {
  static constexpr const char *kNames[] = {"per_array", "shared"};
};
enum class Projection { Analog, Exact, Reuse };
template <>
struct EnumNames<Projection> {
  static constexpr const char *kNames[] = {"analog", "exact", "reuse"};
};
enum class FactorUpdate { Sample, Accumulated };
template <>
struct EnumNames<FactorUpdate> {
  static constexpr const char *kNames[] = {"sample", "accumulated"};
};
enum class Reinit { Kaiming, Orthogonal, KeepB, Decay, None, Svd };
template <>
struct EnumNames<Reinit> {
  static constexpr const char *kNames[] = {"kaiming", "orthogonal", "keep_b",
                                           "decay",   "none",       "svd"};
};
enum class ReinitWrite { Direct, Pulsed };
template <>
struct EnumNames<ReinitWrite> {
  static constexpr const char *kNames[] = {"direct", "pulsed"};
};

/// Reference that the cells of A and B are read against.
enum class FastReference { None, SymmetricPoint };
template <>
struct EnumNames<FastReference> {
  static constexpr const char *kNames[] = {"none", "symmetric_point"};
};
/// Times at which components of A change the sign that they are stored with.
enum class Chopper { None, Reinit };
template <>
struct EnumNames<Chopper> {
  static constexpr const char *kNames[] = {"none", "reinit"};
};

/// Extent of one adapter: each tile of a layer, or the whole layer.
enum class AdapterSpan { Tile, Layer };
template <>
struct EnumNames<AdapterSpan> {
  static constexpr const char *kNames[] = {"tile", "layer"};
};

/// Cells that serve as fast arrays for every visible device: the measured 6T1C cell of the device
/// presets (a LinearStep); the default device in a build without that model.
DeviceParams defaultFast();

/// Settings of the low-rank adapter (definition of the device: docs/reference/lrtt.md).
struct LRTTParams : CompoundBase, FastRetentionParams {
  static constexpr const char *kKind = "lrtt";
  static constexpr const char *kName = "LRTTConfig";
  static constexpr const char *kDoc =
      "The pulsed low-rank adapter: fast arrays A [d, K] and B [K, x] on a visible array W [d, x].";

  AutoInt rank = AutoInt::byLibrary();
  DeviceParams visible;
  DeviceParams fast = defaultFast();
  AutoFloat lora_alpha = AutoFloat::byLibrary();
  AutoFloat transfer_lr = AutoFloat::byLibrary();
  RankScaling rank_scaling = RankScaling::None;
  LrScale ab_lr_scale = LrScale::Matched;
  AutoFloat a_lr = AutoFloat::byLibrary();
  AutoFloat b_lr = AutoFloat::byLibrary();
  float ab_step_limit = 0.0f;
  bool forward_inject = true;
  InjectIo inject_io = InjectIo::PerArray;
  Projection projection = Projection::Analog;
  FactorUpdate ab_update = FactorUpdate::Sample;
  FastReference reference = FastReference::None;
  int reference_pulses = 0;
  Chopper chopper = Chopper::None;
  float chopper_prob = 0.5f;
  bool ab_use_update_management = true;
  bool ab_use_bl_management = true;
  int ab_desired_bl = -1;
  bool swap_xd = false;
  AutoLong transfer_every = 1000;
  bool units_in_mbatch = true;
  TransferMode transfer_mode = TransferMode::Auto;
  int transfer_max_trains = 64;
  AutoInt transfer_rounds = AutoInt::byLibrary();
  AutoFloat transfer_tolerance = AutoFloat::byLibrary();
  int transfer_max_pulses = 1000;
  bool keep_rest = true;
  TransferRead verify_read = TransferRead::Exact;
  AutoInt verify_reads = AutoInt::byLibrary();
  TransferRead transfer_read = TransferRead::Exact;
  bool transfer_use_update_management = false;
  bool transfer_use_bl_management = false;
  int transfer_desired_bl = -1;
  int rank_chunk = -1;
  int rank_offset = 0;
  Reinit reinit = Reinit::Decay;
  AutoFloat reinit_gain = AutoFloat::byLibrary();
  float reinit_decay = 0.9f;
  ReinitWrite reinit_write = ReinitWrite::Direct;
  AdapterSpan adapter_span = AdapterSpan::Tile;
  int64_t max_input_size = 0;
  int64_t max_output_size = 0;

  template <class Visitor>
  static void fields(Visitor &f) {
    using P = LRTTParams;
    f(&P::rank, "rank", atLeast(0), "",
      "Number K of components of the adapter; 0 is the visible device alone. 'auto': 16, or the "
      "smaller side of a smaller tile.",
      "auto");
    f(&P::visible, "visible", anyNumber(), "", "Device model of the visible array W [d, x].");
    f(&P::fast, "fast", anyNumber(), "",
      "Device model of the fast arrays A [d, K] and B [K, x]; the measured 6T1C cell by default.");
    f(&P::lora_alpha, "lora_alpha", anyNumber(), "",
      "Factor alpha of the adapter, y = W x + alpha A (B x); 'auto' with ab_lr_scale = "
      "'matched': A fills its cells; otherwise sqrt(x / (2 K)) / reinit_gain, and the first step "
      "matches plain SGD.",
      "auto");
    f(&P::transfer_lr, "transfer_lr", anyNumber(), "",
      "A transfer adds transfer_lr A B to W; 'alpha' keeps the effective weight continuous.",
      "alpha");
    f(&P::rank_scaling, "rank_scaling", anyNumber(), "", "'rslora' divides alpha by sqrt(K).");
    f(&P::ab_lr_scale, "ab_lr_scale", anyNumber(), "",
      "Learning rates of A and B: 'matched' makes the first step match plain SGD whatever "
      "lora_alpha and reinit_gain are; 'alpha' is lr alpha for both, the gradient of the "
      "forward read with the adapter; 'none' is lr.");
    f(&P::a_lr, "a_lr", anyNumber(), "relative",
      "Learning rate of A, in units of the tile's; 'auto' follows ab_lr_scale.", "auto");
    f(&P::b_lr, "b_lr", anyNumber(), "relative",
      "Learning rate of B, in units of the tile's; 'auto' follows ab_lr_scale.", "auto");
    f(&P::ab_step_limit, "ab_step_limit", nonNegative(), "relative",
      "Largest response of the adapter to the update by a sample, in units of plain SGD's: g and e "
      "of samples beyond it are scaled down. 1 makes steps stable where plain SGD's are, as large "
      "learning rates and convolutions need; 0 is no limit.");
    f(&P::forward_inject, "forward_inject", anyNumber(), "",
      "Whether forward and backward reads include the adapter; otherwise A and B act only "
      "through transfers.");
    f(&P::inject_io, "inject_io", anyNumber(), "",
      "'per_array': each read has its own DAC, noise and ADC; 'shared': one ADC after an analog "
      "sum.");
    f(&P::projection, "projection", anyNumber(), "",
      "Reads of g = B x and e = A^T d for an update: 'analog' through the arrays' periphery, "
      "'exact', or 'reuse' of the last forward and backward reads of the batch.");
    f(&P::ab_update, "ab_update", anyNumber(), "",
      "Pulses of A and B: 'sample': pulse trains for each sample; 'accumulated': gradients are "
      "summed digitally, and at the end of a mini-batch each cell gets the whole pulses in its "
      "sum; this saves pulses on noisy or asymmetric cells.");
    f(&P::reference, "reference", anyNumber(), "",
      "Reference that reads of A and B subtract: 'none', or a second conductance per cell at "
      "its 'symmetric_point', to which pulses pull it; for cells whose point is not 0.");
    f(&P::reference_pulses, "reference_pulses", between(0.0, 1e5), "pulse pairs",
      "Pairs of a pulse up and one down that find reference = 'symmetric_point', with the noise "
      "of pulses of these cells; 0 is exact.");
    f(&P::chopper, "chopper", anyNumber(), "",
      "Random signs of the stored components of A: 'reinit' turns them at re-inits, where A is "
      "0, so that a drift of cells adds to W with either sign.");
    f(&P::chopper_prob, "chopper_prob", probability(), "",
      "Probability with which a re-init turns the sign of a component (chopper = 'reinit').");
    f(&P::ab_use_update_management, "ab_use_update_management", anyNumber(), "",
      "Whether updates of A and B use update management.");
    f(&P::ab_use_bl_management, "ab_use_bl_management", anyNumber(), "",
      "Whether updates of A and B use pulse-train-length management.");
    f(&P::ab_desired_bl, "ab_desired_bl", atLeast(-1), "slots",
      "Length of the pulse trains of A and B; -1 takes the update parameters'.");
    f(&P::swap_xd, "swap_xd", anyNumber(), "",
      "Exchange the roles of x and d: the adapter belongs to the transposed tile.");
    f(&P::transfer_every, "transfer_every", atLeast(0), "mini-batches",
      "Mini-batches (or samples, see units_in_mbatch) per transfer; 0 is never; 'auto': when A or "
      "B has come near enough to the bounds of its cells, as seen every 8 mini-batches.",
      "auto");
    f(&P::units_in_mbatch, "units_in_mbatch", anyNumber(), "",
      "Whether transfer_every counts mini-batches; otherwise it counts samples (in a "
      "convolution, one per pixel of the output).");
    f(&P::transfer_mode, "transfer_mode", anyNumber(), "",
      "'write_verify': each cell is read and pulsed until it lies within transfer_tolerance of "
      "its target; 'lossless': as many pulse trains per component as its largest element needs; "
      "'verified': lossless, then the part that a read finds missing is sent again; 'single': one "
      "clipped pulse train; 'exact': a digital write; 'auto': 'write_verify', or 'lossless' with a "
      "pulse_type that sends no pulses, which adds A B in floating point.");
    f(&P::transfer_max_trains, "transfer_max_trains", atLeast(1), "pulse trains",
      "Upper limit of pulse trains per component.");
    f(&P::transfer_rounds, "transfer_rounds", atLeast(1), "rounds",
      "Largest number of times that a 'verified' transfer is read back and sent again ('auto': "
      "3), or that 'write_verify' reads and pulses a cell ('auto': 64).",
      "auto");
    f(&P::transfer_tolerance, "transfer_tolerance", positive(), "weight",
      "'write_verify': largest distance of a cell from its target, in the first half of the "
      "rounds; 'auto': 0.01 of the range of a cell, or less where a cell is quieter. After r of R "
      "rounds, R / (R - r) times as much is accepted.",
      "auto");
    f(&P::transfer_max_pulses, "transfer_max_pulses", atLeast(1), "pulses",
      "'write_verify': most pulses of a cell before the second read; half as many before the "
      "third, a third before the fourth.");
    f(&P::keep_rest, "keep_rest", anyNumber(), "",
      "'write_verify' with reinit = 'decay' or 'keep_b': whether A keeps what cells did not take. "
      "In rows with cells at their bounds, the other cells then make up for what A B adds.");
    f(&P::verify_read, "verify_read", anyNumber(), "",
      "'write_verify': reads of the cells of W: 'exact', or 'analog': with one line driven, "
      "through "
      "converters and noise of the array's periphery.");
    f(&P::verify_reads, "verify_reads", atLeast(1), "reads",
      "Readings whose mean is one read of a cell with verify_read = 'analog'; 'auto': as many as "
      "bring its error to half the tolerance, at most 16.",
      "auto");
    f(&P::transfer_read, "transfer_read", anyNumber(), "",
      "Reads of A and B for a transfer: 'exact', or 'analog': one-hot inputs through the "
      "arrays' periphery.");
    f(&P::transfer_use_update_management, "transfer_use_update_management", anyNumber(), "",
      "Whether pulse trains of transfers use update management.");
    f(&P::transfer_use_bl_management, "transfer_use_bl_management", anyNumber(), "",
      "Whether transfers use pulse-train-length management.");
    f(&P::transfer_desired_bl, "transfer_desired_bl", atLeast(-1), "slots",
      "Length of the pulse trains of transfers; -1 takes the update parameters'.");
    f(&P::rank_chunk, "rank_chunk", atLeast(-1), "",
      "Components written per pass of a transfer; -1 is all.");
    f(&P::rank_offset, "rank_offset", nonNegative(), "",
      "Component at which a pass of a transfer begins; the result does not depend on it.");
    f(&P::reinit, "reinit", anyNumber(), "", "New values of A and B after a transfer.");
    f(&P::reinit_gain, "reinit_gain", positive(), "",
      "Gain g of the re-init: B is drawn with standard deviation g sqrt(2 / x), x being the "
      "number of inputs of B; 'auto' is 0.5, or with ab_lr_scale = 'matched' the gain that "
      "fills the cells of B.",
      "auto");
    f(&P::reinit_decay, "reinit_decay", anyNumber(), "", "Factor on B for reinit = 'decay'.");
    f(&P::reinit_write, "reinit_write", anyNumber(), "",
      "Whether a re-init is written digitally or by pulses.");
    f(&P::adapter_span, "adapter_span", anyNumber(), "",
      "Extent of one A and one B: each 'tile' of a layer, or the whole 'layer', which then is "
      "one tile whose W, A and B are read in blocks.");
    f(&P::max_input_size, "max_input_size", atLeast(0), "lines",
      "Largest number of inputs x of a block with adapter_span = 'layer'; 0 is the limit of the "
      "layer, and none for a tile by itself.");
    f(&P::max_output_size, "max_output_size", atLeast(0), "lines",
      "Largest number of outputs d of a block; see max_input_size.");
    FastRetentionParams::fields(f);
  }

  CompoundFacts facts() const;
  static std::vector<CompoundVariant> variants();
  std::unique_ptr<AnalogDevice> make(const CompoundSite &site) const;
};

}  // namespace pulsora
