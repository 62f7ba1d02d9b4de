#pragma once

#include <string>

#include "compounds/analog_device.h"
#include "core/scratch.h"
#include "lrtt/accumulated_update.h"
#include "lrtt/reinit.h"
#include "lrtt/rest.h"
#include "lrtt/settings.h"
#include "lrtt/step_limit.h"
#include "periphery/additive_reads.h"
#include "transfer/pulse_writer.h"

namespace pulsora {

/// Numbers that no weight of A and B exceeds.
struct AdapterBounds {
  double a;
  double b;
};

/// The low-rank adapter alpha A B of an LRTT tile: two arrays A [outputs, K] and B [K, inputs],
/// with their reads in both directions, their updates and their re-initialisation. With swap_xd it
/// is the adapter of the transposed tile.
class LRTTAdapter {
 public:
  /// Name of the state value of the samples that projection = 'reuse' has projected anew, after a
  /// re-init within a mini-batch; states of earlier versions lack it.
  static constexpr const char *kProjected = "projected_samples";
  // Slots of the tile's arrays.
  static constexpr uint32_t kSlotVisible = 0;
  static constexpr uint32_t kSlotA = 1;
  static constexpr uint32_t kSlotB = 2;

  /// `periphery` is the tile's. A starts as zeros, B as drawn by re-init number 0 (with reinit =
  /// 'svd': as set by setReinitVectors()).
  LRTTAdapter(const Context &context, const LRTTSettings &settings, const TilePeriphery &periphery,
              const TileKeys &keys);

  /// The fast arrays. With lrtt.chopper, each component k of A has a sign: cells store A's column
  /// times that sign, and are pulsed by g times that sign. The weights of arrayA() are A itself.
  Crossbar &arrayA() { return a_; }
  Crossbar &arrayB() { return b_; }
  const PulsedDevice &a() const { return a_.cells(); }
  const PulsedDevice &b() const { return b_.cells(); }
  /// The factors in the tile's orientation, [dSize, K] and [xSize, K]: the adapter adds alpha *
  /// dFactor xFactor^T to W.
  MatrixView<const float> dFactor() const {
    return settings_.params.swap_xd ? b_.weights(Pass::Backward) : a_.weights();
  }
  MatrixView<const float> xFactor() const {
    return settings_.params.swap_xd ? a_.weights() : b_.weights(Pass::Backward);
  }

  /// AnalogDevice::boundReads() for the reads of both arrays; returns their largest weights.
  AdapterBounds boundReads(const Context &context);

  /// out = base(in) + alpha A (gate .* (B in)) in the tile's direction `pass` (backward: the
  /// transposed product), read through the arrays' periphery. `gate` [m, K] may have no data;
  /// otherwise `ungated` [m, K] gets the first product before the gate.
  void readWith(const Context &context, Pass pass, const ArrayRead &base,
                MatrixView<const float> in, MatrixView<const float> gate, MatrixView<float> ungated,
                MatrixView<float> out, uint64_t firstSample);
  /// out += alpha A (B in) in exact arithmetic.
  void addExactProduct(const Context &context, Pass pass, MatrixView<const float> in,
                       MatrixView<float> out);

  /// Pulses A by (g, d) and B by (x, e), with g = B x and e = A^T d read from the arrays as they
  /// were at the first update of this mini-batch or after the last re-init; g and e are multiplied
  /// by `gate` unless it is empty. `lr` is the tile's. ConfigError if projection = 'reuse' has no
  /// stored reads.
  void update(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
              MatrixView<const float> gate, float lr, uint64_t firstSample);
  /// Reserves storage for update() of up to `samples` samples, and for reinit(), which then cannot
  /// run out of memory.
  void reserveUpdate(const Context &context, int64_t samples, float lr);
  void reserveReinit(const Context &context);
  /// Reserves storage for flush() and endMiniBatch().
  void reserveFlush(const Context &context) {
    accumulated_.reserveFlush(context, a_.cells(), b_.cells());
  }
  /// Reserves the memory of cells that endMiniBatch() will touch.
  void reserveRelax(const Context &context) const {
    a_.cells().reserveRelax(context);
    b_.cells().reserveRelax(context);
  }
  /// Reserves storage for addExactProduct() of so many rows.
  void reserveInner(const Context &context, int64_t rows) {
    inner_.reserve(context, rows * settings_.rank);
  }
  /// Whether an update without gates takes few launches; the kernels of such an update check x and
  /// d for non-finite values before anything changes.
  bool updatesInFewLaunches(const Context &context) const;
  /// Decay and diffusion of mini-batch number `event`; the next update reads the arrays again.
  void endMiniBatch(const Context &context, uint64_t event);
  /// With ab_update = 'accumulated', pulses A and B by the accumulated updates. endMiniBatch() does
  /// so too; needed before a transfer within a mini-batch.
  void flush(const Context &context);

  /// Applies the bounds of A and B that are due. To be called before a transfer within a
  /// mini-batch.
  void meetBounds(const Context &context);
  /// Re-initialises A and B after a transfer, as lrtt.reinit says.
  void reinit(const Context &context);
  /// Writes A so that A B comes closest to `missing` / transfer_lr, [dSize, xSize]; A is 0 before.
  /// With a tolerance, rows with a cell that misses more stand for such cells alone (RowHolder).
  void keepRest(const Context &context, MatrixView<const float> missing, float tolerance);
  /// The rows of the latest keepRest() with a tolerance.
  const RestKeeper &rest() const { return rest_; }
  /// A <- 0, digitally.
  void clear(const Context &context);
  /// Writes arrayA() or arrayB(), digitally.
  void setWeights(const Context &context, Crossbar &array, MatrixView<const float> weights);
  /// To be called after A or B was changed by anything but an update: the next update reads the
  /// arrays again.
  void arraysReplaced();
  /// Sets the directions [K, inputs] for reinit = 'svd', and writes them to B at once, scaled to
  /// the expected row norm.
  void setReinitVectors(const Context &context, MatrixView<const float> vectors);
  /// InputError unless there are random numbers left for so many writes of A or B, re-inits (each
  /// writes both), and flushes of accumulated updates.
  void requireRoom(uint64_t writes, uint64_t reinits = 0, uint64_t flushes = 0) const;
  /// ConfigError unless an update of so many samples has all it needs; nothing changes.
  void requireReady(int64_t samples) const;
  uint64_t reinits() const { return reinits_; }
  const UpdateParameters &updateParameters() const { return a_.updater().parameters(); }
  size_t memoryBytes() const;
  /// AnalogDevice::countHardware() for both arrays.
  void countHardware(const Counters &c, HardwareCounts &counts) const;

  /// The state leaves out reads that projection = 'reuse' has stored for a later update.
  void saveTo(const Context &context, State &state, const std::string &prefix) const;
  void loadFrom(const Context &context, const State &state, const std::string &prefix);

 private:
  // The results of the last read of a direction, for projection = 'reuse'; updates have used the
  // rows before `used`.
  struct KeptRead {
    Buffer<float> values;
    int64_t rows = 0;
    int64_t used = 0;
  };

  // The adapter's direction for the tile's direction `pass`: Forward is from the adapter's inputs
  // to its outputs; swap_xd exchanges the two.
  Pass own(Pass pass) const;
  ArrayRead first(Pass ownPass);
  ArrayRead second(Pass ownPass);
  KeptRead &kept(Pass ownPass) { return ownPass == Pass::Forward ? keptG_ : keptE_; }
  void keep(const Context &context, KeptRead &kept, MatrixView<const float> read);
  void forgetReads();

  bool limitsSteps() const { return settings_.params.ab_step_limit > 0.0f; }
  void takeSnapshot(const Context &context);
  MatrixView<const float> snapshotA() const {
    return rowMajor<const float>(snapshotA_.data(), a_.rows(), a_.cols());
  }
  MatrixView<const float> snapshotB() const {
    return rowMajor<const float>(snapshotB_.data(), b_.rows(), b_.cols());
  }
  void project(const Context &context, MatrixView<const float> in, MatrixView<const float> out,
               uint64_t firstSample);
  void updateInFewLaunches(const Context &context, MatrixView<const float> in,
                           MatrixView<const float> out, float lrA, float lrB, uint64_t firstSample);
  void takeKept(const Context &context, KeptRead &kept, MatrixView<float> to);
  MatrixView<const float> zeros() const;
  void startA(const Context &context);
  void startB(const Context &context);
  void takeSigns(const Context &context);
  void turnA(const Context &context, const float *factors);
  void write(const Context &context, PulsedDevice &array, MatrixView<const float> target);

  LRTTSettings settings_;
  Crossbar a_;
  Crossbar b_;
  AnalogRead projectionA_;  // e = A^T out
  AnalogRead projectionB_;  // g = B in
  RandomKey reinitKey_;
  RandomKey chopperKey_;

  Buffer<float> snapshotA_,
      snapshotB_;  // the arrays that this mini-batch's updates are projected with
  bool snapshotTaken_ = false;
  Buffer<float> zero_;   // one
  Buffer<float> signs_;  // scratch: signs of A's columns; empty without a chopper
  ScratchBuffer<float> newB_;
  HostRows rows_;  // scratch
  PulseWriter writer_;
  RestKeeper rest_;
  Buffer<float> reinitVectors_;  // reinit = 'svd' alone
  bool reinitVectorsSet_ = false;
  uint64_t reinits_ = 0;
  uint64_t projected_ = 0;  // see kProjected
  uint64_t writes_ = 0;

  KeptRead keptG_, keptE_;
  bool keptStale_ = false;                // the arrays were replaced within this mini-batch
  ScratchBuffer<float> inner_, product_;  // [m, K], and [m, lines]
  ScratchBuffer<float> g_, e_;
  StepLimit stepLimit_;
  AccumulatedUpdate accumulated_;
};

}  // namespace pulsora
