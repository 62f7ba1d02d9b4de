#pragma once

#include <vector>

#include "compounds/array_group.h"
#include "compounds/retention_parameters.h"
#include "core/scratch.h"
#include "transfer/line_read.h"
#include "transfer/line_trains.h"
#include "transfer/transfer_schedule.h"

namespace pulsora {

/// Two arrays of cells that are pulsed up alone: W = g_plus - g_minus.
struct OneSidedParams : CompoundBase, RetentionParams {
  static constexpr const char *kKind = "one_sided";
  static constexpr const char *kName = "OneSidedConfig";
  static constexpr const char *kDoc =
      "Pairs of cells that take pulses up alone, W = g_plus - g_minus; the sign of a pulse chooses "
      "the cell, and pairs that saturate are refreshed.";

  DeviceParams device;
  int64_t refresh_every = 1;
  bool units_in_mbatch = true;
  float refresh_upper_thres = 0.75f;
  float refresh_lower_thres = 0.25f;
  IOParameters refresh_forward = exactRead();
  UpdateParameters refresh_update = wholeDifference();
  GroupIo read_io = GroupIo::Shared;

  template <class Visitor>
  static void fields(Visitor &f) {
    using P = OneSidedParams;
    f(&P::device, "device", anyNumber(), "",
      "Device model of both arrays, whose cells are drawn independently.");
    f(&P::refresh_every, "refresh_every", between(0, 1e15), "mini-batches",
      "Mini-batches (or samples, see units_in_mbatch) per refresh; 0 is never.");
    f(&P::units_in_mbatch, "units_in_mbatch", anyNumber(), "",
      "Whether refresh_every counts mini-batches; otherwise it counts samples (in a convolution, "
      "one per pixel of the output).");
    f(&P::refresh_upper_thres, "refresh_upper_thres", nonNegative(), "relative",
      "A pair is refreshed if the larger of its conductances is above this share of w_max, and the "
      "smaller one above refresh_lower_thres.");
    f(&P::refresh_lower_thres, "refresh_lower_thres", nonNegative(), "relative",
      "See refresh_upper_thres.");
    f(&P::refresh_forward, "refresh_forward", anyNumber(), "",
      "Periphery of the reads of single columns before a refresh.");
    f(&P::refresh_update, "refresh_update", anyNumber(), "",
      "Pulsed update that writes the difference of a pair back after its reset; by default as many "
      "deterministic pulses as the difference takes. 'none_with_device' writes exactly.");
    f(&P::read_io, "read_io", anyNumber(), "", kGroupIoDoc);
    RetentionParams::fields(f);
  }
  template <class Check>
  void check(const Check &c) const {
    RetentionParams::check(c);
    c.require(refresh_lower_thres <= refresh_upper_thres, c.path("refresh_lower_thres"), " is ",
              refresh_lower_thres, ", above refresh_upper_thres = ", refresh_upper_thres,
              "; the smaller conductance of a pair cannot be above the larger one: give a share "
              "of that or less");
    c.require(!refresh_forward.solvesWires(), c.path("refresh_forward"),
              ".wires is 'solved', which reads of single lines do not offer; choose 'formula'");
    c.require(refresh_update.pulse_type != PulseType::None, c.path("refresh_update.pulse_type"),
              " is 'none', which ignores the bounds of cells; use 'none_with_device' to write "
              "differences exactly");
  }

  CompoundFacts facts() const { return {"device"}; }
  std::unique_ptr<AnalogDevice> make(const CompoundSite &site) const;
  static std::vector<CompoundVariant> variants();

  static IOParameters exactRead();
  static UpdateParameters wholeDifference();
};

/// The differences that a refresh writes back: -(g_plus - g_minus) of the pairs that saturate, as
/// read line by line, and 0 for the others; and which pairs these are, [rows, cols].
struct RefreshChoice {
  MatrixView<const float> plus;   // as read: [cols, rows]
  MatrixView<const float> minus;  // as read: [cols, rows]
  float upper;                    // conductances, not shares
  float lower;
  float *negative;        // [cols, rows]
  float *chosen;          // [rows, cols]
  const uint32_t *fault;  // see Context::nonfiniteFlag; may be null

  PULSORA_HD void operator()(int64_t i) const {
    const int64_t col = i / plus.cols;
    const int64_t row = i % plus.cols;
    const float p = plus(col, row);
    const float q = minus(col, row);
    const bool saturates = pulsora::max(p, q) > upper && pulsora::min(p, q) > lower;
    const bool due = saturates && !(fault && *fault);
    negative[i] = due ? q - p : 0.0f;
    chosen[row * plus.rows + col] = due ? 1.0f : 0.0f;
  }
};

/// The part of weights that one array of a pair takes: max(sign * W, 0).
struct OneSign {
  MatrixView<const float> weights;
  float sign;
  float *out;

  PULSORA_HD void operator()(int64_t i) const {
    out[i] = pulsora::max(sign * weights(i / weights.cols, i % weights.cols), 0.0f);
  }
};

/// A one-sided cell.
class OneSidedDevice final : public ArrayGroup {
 public:
  OneSidedDevice(const OneSidedParams &params, const CompoundSite &site);

  void boundReads(const Context &context) override;
  void update(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
              float lr, const Counters &c) override;
  void reserveUpdate(const Context &context, int64_t samples, float lr) override;
  void prepareUpdate(const Context &context, int64_t samples, int64_t longest, float lr) override;
  /// Refreshes pairs where that is due, then decay and diffusion.
  void postUpdate(const Context &context, float lr, const Counters &c) override;
  void endMiniBatch(const Context &context, const std::vector<NamedArray> &arrays,
                    const Counters &c) override;
  float countedStep() const override { return at(0).cells().granularity(); }
  void reserveCounts(const Context &context, int64_t visits) override;
  /// Pulses up go to g_plus; pulses down go to g_minus, up.
  void applyCounts(const Context &context, const LinePulses &pulses) override;
  bool updateLooksForFaults(const Context &context, int64_t) const override {
    return !context.onCpu() && !schedule_.counts(TransferSchedule::Unit::Samples);
  }
  /// g_plus <- max(weights, 0), g_minus <- max(-weights, 0); the refresh schedule starts anew.
  void setWeights(const Context &context, MatrixView<const float> weights,
                  const Counters &c) override;
  Value::Map explain(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                     float lr) const override;
  /// Also the number of refreshes.
  Value::Map statistics(const Context &context) const override;
  void countHardware(const Counters &c, HardwareCounts &counts) const override;
  void saveTo(const Context &context, State &state, const std::string &prefix) const override;
  void loadFrom(const Context &context, const State &state, const std::string &prefix) override;

 private:
  bool sharesTrains() const override { return true; }
  PulsedDevice &plus() { return at(0).cells(); }
  PulsedDevice &minus() { return at(1).cells(); }
  void requireRoom(int64_t refreshes) const;
  void reserveRefresh(const Context &context);
  void refresh(const Context &context);
  void writeBack(const Context &context);
  uint64_t mostRefreshes() const;

  OneSidedParams params_;
  TransferSchedule schedule_;
  uint64_t refreshes_ = 0;
  LineRead readPlus_, readMinus_;
  RandomKey writeKey_;
  LineTrains writer_;
  ScratchBuffer<float> negative_;  // see RefreshChoice
  ScratchBuffer<float> chosen_;
};

}  // namespace pulsora
