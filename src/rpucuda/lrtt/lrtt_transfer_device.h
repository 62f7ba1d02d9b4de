#pragma once

#include <memory>
#include <string>

#include "compounds/analog_device.h"
#include "lrtt/adapter.h"
#include "lrtt/filling.h"
#include "lrtt/settings.h"
#include "lrtt/transfer.h"
#include "transfer/transfer_schedule.h"

namespace pulsora {

/// A visible array W [d, x] with a pulsed low-rank adapter: y = W x + alpha A (B x). A and B learn
/// by pulses; W changes by transfers alone, W <- W + transfer_lr A B. Each transfer ends with a
/// re-initialisation of A and B. Definition: docs/reference/lrtt.md.
class LRTTTransferDevice final : public AnalogDevice, private GatedAdapter {
 public:
  /// Throws ConfigError, naming `lrtt.<parameter>`, for settings that contradict one another or the
  /// size.
  LRTTTransferDevice(const LRTTParams &parameters, const CompoundSite &site);

  int64_t dSize() const override { return settings_.dSize; }
  int64_t xSize() const override { return settings_.xSize; }
  /// "visible", and unless the rank is 0 "fast_a" [d, K] and "fast_b" [K, x] ([x, K] and [K, d]
  /// with swap_xd).
  std::vector<NamedArray> arrays() override;
  void boundReads(const Context &context) override;
  std::string whyNoIntegers() const override;
  void forward(const Context &context, MatrixView<const float> x, MatrixView<float> y,
               const Counters &c) override;
  void backward(const Context &context, MatrixView<const float> d, MatrixView<float> dx,
                const Counters &c) override;
  void update(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
              float lr, const Counters &c) override;
  void postUpdate(const Context &context, float lr, const Counters &c) override;
  /// Within a mini-batch, later updates project with A and B at these ages.
  void setAges(const Context &context, const std::vector<Age> &ages) override;
  void reserveUpdate(const Context &context, int64_t samples, float lr) override;
  void prepareUpdate(const Context &context, int64_t samples, int64_t longest, float lr) override;
  /// False with projection = 'reuse', where an update uses the reads of all its samples or none. An
  /// update that might exhaust the numbers of transfers is refused before its first sample.
  bool updateMayBeCut(const Context &context) const override;
  /// False if an update will use what a read of its whole mini-batch has left.
  bool readsMayBeCut() const override { return settings_.params.projection != Projection::Reuse; }
  bool updateLooksForFaults(const Context &context, int64_t samples) const override;
  /// W + alpha A B; with forward_inject = False, W.
  void getWeights(const Context &context, MatrixView<float> out) const override;
  /// W <- weights, A <- 0.
  void setWeights(const Context &context, MatrixView<const float> weights,
                  const Counters &c) override;
  void writeArray(const Context &context, const std::string &name, MatrixView<const float> weights,
                  const Counters &c) override;
  void resetColumns(const Context &context, const std::string &name, int64_t firstCol,
                    int64_t count, float probability, const Counters &c) override;
  Value::Map explain(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                     float lr) const override;
  size_t memoryBytes() const override {
    return visible().memoryBytes() + (adapter_ ? adapter_->memoryBytes() : 0);
  }
  Value::Map statistics(const Context &context) const override;
  void countHardware(const Counters &c, HardwareCounts &counts) const override;
  void saveTo(const Context &context, State &state, const std::string &prefix) const override;
  void loadFrom(const Context &context, const State &state, const std::string &prefix) override;
  /// Null for rank 0.
  GatedAdapter *adapter() override { return adapter_ ? this : nullptr; }

  const LRTTSettings &settings() const { return settings_; }
  const PulsedDevice &visible() const { return visible_.cells(); }
  /// A and B. ConfigError for rank 0.
  const LRTTAdapter &factors() const;
  LRTTAdapter &factors();
  /// The transfers, with their statistics. ConfigError for rank 0.
  const LRTTTransfer &transfers() const;

 private:
  int64_t rank() const override { return settings_.rank; }
  float tolerance() const override { return transfers_->tolerance(); }
  /// ConfigError unless the adapter is injected with inject_io = 'per_array'.
  void forwardGated(const Context &context, MatrixView<const float> x, MatrixView<const float> gate,
                    MatrixView<float> y, MatrixView<float> read, const Counters &c) override;
  void backwardGated(const Context &context, MatrixView<const float> d,
                     MatrixView<const float> gate, MatrixView<const float> read,
                     MatrixView<float> dx, MatrixView<float> gateGradient,
                     const Counters &c) override;
  void updateGated(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                   MatrixView<const float> gate, float lr, const Counters &c) override;
  void transfer(const Context &context) override { transfer(context, settings_.keepsRest()); }
  void merge(const Context &context, MatrixView<const float> weights) override;
  void transfer(const Context &context, bool keepsRest, MatrixView<const float> weights = {});
  void keepRest(const Context &context);
  void setReinitVectors(const Context &context, MatrixView<const float> vectors) override;

  bool injected() const { return adapter_ && settings_.params.forward_inject; }
  ArrayRead visibleRead(Pass pass) { return {visible_.read(pass), visible_.weights(pass)}; }
  void requireGates() const;
  /// InputError unless there are random numbers left for so many transfers and ends of
  /// mini-batches.
  void requireRoom(int64_t transfers, int64_t ends) const;
  /// Transfers that are due by the end of a mini-batch with so many samples to come.
  int64_t dueWithin(int64_t samples) const;
  void requireAdapter() const;
  void read(const Context &context, Pass pass, MatrixView<const float> in, MatrixView<float> out,
            uint64_t firstSample);
  void readShared(const Context &context, Pass pass, MatrixView<const float> in,
                  MatrixView<float> out, uint64_t firstSample);
  /// Transfers that may be due at the end of the next mini-batch.
  int64_t dueAtEnd() const;
  void reserveTransfer(const Context &context);
  /// To be called after a caller has written A or B.
  void restartFilling(const Context &context) {
    if (filling_) filling_->restart(context, *adapter_, false);
  }
  void writeVisible(const Context &context, MatrixView<const float> weights, const Counters &c);

  LRTTSettings settings_;
  Crossbar visible_;                      // its updater is used for rank 0 alone
  std::unique_ptr<LRTTAdapter> adapter_;  // null for rank 0, as is transfers_
  std::unique_ptr<LRTTTransfer> transfers_;
  TransferSchedule schedule_;                // no transfer is ever due with filling_
  std::unique_ptr<AdapterFilling> filling_;  // of transfer_every = 'auto', else null
  ScratchBuffer<float> backwardRead_;
};

}  // namespace pulsora
