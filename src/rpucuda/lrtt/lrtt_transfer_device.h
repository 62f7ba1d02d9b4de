#pragma once

#include <memory>
#include <string>

#include "compounds/analog_device.h"
#include "periphery/analog_read.h"
#include "lrtt/adapter.h"
#include "lrtt/settings.h"
#include "transfer/pulse_transfer.h"
#include "array/pulsed_device.h"

namespace RPU {

/// A visible array W [d, x] with a pulsed low-rank adapter: y = W x + alpha A (B x). A and B learn
/// by pulses; W changes by transfers alone, W <- W + transfer_lr A B, after each of which A and B
/// start anew. Definition: docs/lrtt.md.
class LRTTTransferDevice final : public AnalogDevice {
 public:
  /// Throws ConfigError, naming `lrtt.<parameter>`, for settings that contradict one another or the
  /// size.
  LRTTTransferDevice(const Context &context, const LRTTParams &parameters,
                     const UpdateParameters &update, const IOParameters &forward,
                     const IOParameters &backward, int64_t dSize, int64_t xSize, uint64_t seed,
                     uint32_t tileId);

  int64_t dSize() const override { return settings_.dSize; }
  int64_t xSize() const override { return settings_.xSize; }
  void forward(const Context &context, MatrixView<const float> x, MatrixView<float> y,
               const Counters &c) override;
  void backward(const Context &context, MatrixView<const float> d, MatrixView<float> dx,
                const Counters &c) override;
  void update(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
              float lr, const Counters &c) override;
  void postUpdate(const Context &context, float lr, const Counters &c) override;
  /// W + alpha A B; with forward_inject = False, W.
  void getWeights(const Context &context, MatrixView<float> out) const override;
  /// W <- weights, A <- 0.
  void setWeights(const Context &context, MatrixView<const float> weights,
                  const Counters &c) override;
  Value::Map explain(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                     float lr) const override;
  Value::Map statistics(const Context &context) const override;
  void saveTo(const Context &context, State &state, const std::string &prefix) const override;
  void loadFrom(const Context &context, const State &state, const std::string &prefix) override;

  /// Routed adapters: y = W x + alpha A (gate .* (B x)) with gate [m, K]. `read` [m, K] gets B x as
  /// it was read, which backwardGated needs. ConfigError unless the adapter is injected with
  /// inject_io = 'per_array'.
  void forwardGated(const Context &context, MatrixView<const float> x, MatrixView<const float> gate,
                    MatrixView<float> y, MatrixView<float> read, const Counters &c);
  /// dx = W^T d + alpha B^T (gate .* (A^T d)), and the gate's gradient alpha (B x) .* (A^T d) [m,
  /// K].
  void backwardGated(const Context &context, MatrixView<const float> d,
                     MatrixView<const float> gate, MatrixView<const float> read,
                     MatrixView<float> dx, MatrixView<float> gateGradient, const Counters &c);
  /// Whether update() for so many samples looks at x and d itself before anything changes.
  bool checksUpdate(const Context &context, int64_t samples) const;
  /// update() for samples whose forward was gated.
  void updateGated(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                   MatrixView<const float> gate, float lr, const Counters &c);

  /// Transfers and re-initialises now, whatever the schedule says; the schedule goes on as it was.
  /// Nothing for rank 0.
  void transfer(const Context &context);

  const LRTTSettings &settings() const { return settings_; }
  const PulsedDevice &visible() const { return visible_; }
  /// A [d, K] and B [K, x] ([x, K] and [K, d] with swap_xd). ConfigError for rank 0.
  const LRTTAdapter &adapter() const;
  LRTTAdapter &adapter();
  /// Of the transfers so far, and of the latest one. ConfigError for rank 0.
  const LRTTTransfer &transfers() const;
  /// Writes W alone; the adapter stays.
  void setVisible(const Context &context, MatrixView<const float> weights, const Counters &c);

 private:
  bool injected() const { return adapter_ && settings_.params.forward_inject; }
  void requireGates() const;
  void requireAdapter() const;
  void read(const Context &context, Pass pass, MatrixView<const float> in, MatrixView<float> out,
            uint64_t firstSample);
  void readShared(const Context &context, Pass pass, MatrixView<const float> in,
                  MatrixView<float> out, uint64_t firstSample);
  void countTowardsTransfer(const Context &context, int64_t units);

  LRTTSettings settings_;
  PulsedDevice visible_;
  ForwardBackwardPass visibleIo_;
  PulsedWeightUpdater visibleUpdater_;    // rank 0
  std::unique_ptr<LRTTAdapter> adapter_;  // null for rank 0, like
  std::unique_ptr<LRTTTransfer> transfers_;
  int64_t sinceTransfer_ = 0;  // samples or mini-batches, see units_in_mbatch
  Buffer<float> backwardRead_;
};

}  // namespace RPU
