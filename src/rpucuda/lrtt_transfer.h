#pragma once

#include <string>
#include <vector>

#include "forward_backward_pass.h"
#include "lrtt_adapter.h"
#include "lrtt_settings.h"
#include "pulsed_weight_updater.h"

namespace RPU {

/// What transfers delivered, compared with T = transfer_lr A B as the arrays were when each was
/// due. Sums run over transfers.
struct TransferStats {
  uint64_t transfers = 0;
  uint64_t trains = 0;             ///< pulse trains sent
  uint64_t pulses = 0;             ///< coincidences in the visible array
  uint64_t clippedComponents = 0;  ///< components of which trains could not carry all
  double delivered = 0.0;          ///< <W' - W, T>
  double intended = 0.0;           ///< <T, T>
  double driven =
      0.0;  ///< expected sum over components and cells of |change|, as the trains carry it
  double wanted = 0.0;         ///< the same sum of |T_k|
  int64_t saturatedCells = 0;  ///< visible cells at a bound after the latest
  double normA = 0.0;          ///< Frobenius norm of A before the latest
  double normB = 0.0;

  /// <W' - W, T> / <T, T>: 1 if everything arrived; 0 if nothing was to be sent.
  double gain() const { return intended > 0.0 ? delivered / intended : 0.0; }
  /// Share of what was wanted that clipped trains could not carry.
  double undelivered() const { return wanted > 0.0 ? 1.0 - driven / wanted : 0.0; }
  void add(const TransferStats &latest);
  Value::Map describe() const;
};

/// How one component of a transfer is sent: `trains` trains, in each of which x line j is driven by
/// xScale * xFactor(j, k) and d line i by dScale * dFactor(i, k), at learning rate `lr` (a
/// magnitude).
struct ComponentPlan {
  int trains = 0;
  float xScale = 1.0f;
  float dScale = 1.0f;
  float strength = 0.0f;  ///< pulses that the component's largest element needs
  bool clipped = false;
  double driven = 0.0;
  double wanted = 0.0;
};
struct TransferPlan {
  std::vector<ComponentPlan> components;
  float lr = 0.0f;

  int64_t trains() const;
};

/// The largest |element| of every component of both factors. The only place where a transfer looks
/// at data on the host.
struct ComponentMaxima {
  std::vector<float> d;
  std::vector<float> x;
};
ComponentMaxima componentMaxima(const Context &context, MatrixView<const float> dFactor,
                                MatrixView<const float> xFactor);

/// Chooses trains and drives for dFactor [dSize, K] and xFactor [xSize, K]; `granularity` is the
/// visible array's.
TransferPlan planTransfer(const Context &context, const LRTTSettings &settings, float granularity,
                          MatrixView<const float> dFactor, MatrixView<const float> xFactor);

/// Adds transfer_lr A B to the visible array.
///
/// The components are sent in the order 0 ... K - 1, each as its trains one after another. Trains
/// are numbered through the life of the tile, and their number keys all draws. Passes only decide
/// how many are sent at a time: the same bits.
class LRTTTransfer {
 public:
  LRTTTransfer(const Context &context, const LRTTSettings &settings, const IOParameters &forward,
               const IOParameters &backward, uint64_t seed, uint32_t tileId);

  /// One transfer; the adapter is left as it was.
  void run(const Context &context, PulsedDevice &visible, const LRTTAdapter &adapter);

  const TransferStats &latest() const { return latest_; }
  const TransferStats &total() const { return total_; }

  void saveTo(const Context &context, State &state, const std::string &prefix) const;
  void loadFrom(const Context &context, const State &state, const std::string &prefix);

 private:
  struct Factors {
    MatrixView<const float> d;  // [dSize, K]
    MatrixView<const float> x;  // [xSize, K]
  };

  Factors readFactors(const Context &context, const LRTTAdapter &adapter);
  void send(const Context &context, PulsedDevice &visible, const Factors &factors);
  void sendTrains(const Context &context, PulsedDevice &visible, const Factors &factors,
                  const TransferPlan &plan);
  void writeDigitally(const Context &context, PulsedDevice &visible, const Factors &factors);
  void measureGain(const Context &context, const Buffer<float> &before, const PulsedDevice &visible,
                   const Factors &exact);

  LRTTSettings settings_;
  AnalogRead readA_, readB_;
  PulsedWeightUpdater updater_;
  uint64_t trainsSent_ = 0;
  TransferStats latest_, total_;
  Buffer<float> readValuesA_, readValuesB_;
};

}  // namespace RPU
