#pragma once

#include <string>
#include <vector>

#include "periphery/analog_read.h"
#include "lrtt/adapter.h"
#include "lrtt/settings.h"
#include "transfer/plan_formulas.h"
#include "array/pulsed_weight_updater.h"

namespace RPU {

/// A plan in host memory, for explain() and tests.
struct TransferPlan {
  std::vector<ComponentPlan> components;
  float lr = 0.0f;

  int64_t trains() const;
};

/// What a plan lies in, on the context's backend.
struct PlanMemory {
  Buffer<ComponentPlan> components;
  Buffer<int64_t> starts;
  Buffer<int64_t> present;
  Buffer<uint32_t> finished;  // on a GPU, one (see cudaPlanTransfer)
};

/// Plans a transfer of `sent`, which are `exact` or what was read of them, into `memory`;
/// `granularity` is the visible array's.
TransferPlanner planInto(const Context &context, const LRTTSettings &settings, float granularity,
                         const TransferFactors &sent, const TransferFactors &exact,
                         PlanMemory &memory);

/// The plan for dFactor [dSize, K] and xFactor [xSize, K]; waits for a GPU.
TransferPlan planTransfer(const Context &context, const LRTTSettings &settings, float granularity,
                          MatrixView<const float> dFactor, MatrixView<const float> xFactor);

// cuda/transfer/pulse_transfer.cu

/// planComponent() for every component, then placeTrains(). `finished` is 0 before and after.
void cudaPlanTransfer(const Context &context, const TransferPlanner &planner, uint32_t *finished);
/// Sums of every row of W: aligned[i] = sum_j w_ij t_ij and, unless null, squares[i] = sum_j t_ij^2
/// with T = lr d x^T, in the order of sumRows() and to its bits.
void cudaAlignRows(const Context &context, MatrixView<const float> weights,
                   const TransferFactors &factors, float lr, double *aligned, double *squares);
void cudaCountTransfer(const Context &context, const TransferTally &tally);

/// Adds transfer_lr A B to the visible array.
///
/// The components are sent in the order 0 ... K - 1, each as its trains one after another. Train
/// number n of transfer number t is sample t K transfer_max_trains + n of the visible array, which
/// keys all draws. Passes only decide how many are sent at a time: the same bits.
///
/// On a GPU all of it happens there: how many trains there are, and what arrived, the host learns
/// when it asks.
class LRTTTransfer {
 public:
  LRTTTransfer(const Context &context, const LRTTSettings &settings, const IOParameters &forward,
               const IOParameters &backward, uint64_t seed, uint32_t tileId);

  /// One transfer; the adapter is left as it was.
  void run(const Context &context, PulsedDevice &visible, const LRTTAdapter &adapter);

  uint64_t count() const { return transfers_; }
  /// Of the latest transfer, and of all; both wait for a GPU.
  TransferStats latest(const Context &context) const;
  TransferStats total(const Context &context) const;

  void saveTo(const Context &context, State &state, const std::string &prefix) const;
  void loadFrom(const Context &context, const State &state, const std::string &prefix);

 private:
  TransferFactors readFactors(const Context &context, const LRTTAdapter &adapter);
  void send(const Context &context, PulsedDevice &visible, const TransferPlanner &plan);
  void sendTrains(const Context &context, PulsedDevice &visible, const TransferPlanner &plan);
  void writeDigitally(const Context &context, PulsedDevice &visible,
                      const TransferFactors &factors);
  void align(const Context &context, const PulsedDevice &visible, const TransferFactors &exact,
             double *aligned, double *squares);
  uint64_t firstSample() const;

  LRTTSettings settings_;
  AnalogRead readA_, readB_;
  PulsedWeightUpdater updater_;
  uint64_t transfers_ = 0;
  Buffer<TransferStats> stats_;  // of the latest and of all
  PlanMemory plan_;
  Buffer<double> rowSums_;  // see TransferTally
  Buffer<float> readValuesA_, readValuesB_;
  Buffer<float> xDrives_, dDrives_;
};

}  // namespace RPU
