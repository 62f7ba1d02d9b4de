#pragma once

#include <string>

#include "array/pulsed_device.h"
#include "core/buffer.h"
#include "core/scratch.h"
#include "storage/state.h"
#include "transfer/plan_formulas.h"
#include "transfer/transfer_rule.h"

namespace pulsora {

/// Keeps account of the transfers onto one array: the intended change, the change that arrived, and
/// the pulses used. The array may also be pulsed between transfers.
class TransferLedger {
 public:
  explicit TransferLedger(const Context &context);

  /// Reserves storage for open() and close(), which then cannot run out of memory.
  void reserve(const Context &context, const PulsedDevice &to);
  /// To be called before a transfer of lr d x^T onto `to`.
  void open(const Context &context, const PulsedDevice &to, const TransferFactors &exact, float lr);
  /// To be called after each attempt of that transfer, with the plan of the attempt.
  void close(const Context &context, const PulsedDevice &to, const TransferFactors &exact,
             const TransferRule &rule, const ComponentPlan *components, int sending,
             const ProgramCounts *program = nullptr);
  /// To be called after a revision of the latest transfer; see RevisionTally.
  void revise(const Context &context, const PulsedDevice &to, const ProgramCounts *program,
              float tolerance, bool readsFirst, const uint32_t *anyHeld);
  /// The part of T that the next attempt has to deliver.
  const MissingPart *missing() const { return missing_.data(); }

  uint64_t transfers() const { return transfers_; }
  /// Statistics of the latest transfer, and of all; both wait for a GPU.
  TransferStats latest(const Context &context) const;
  TransferStats total(const Context &context) const;
  /// Memory in which the planner of a transfer notes the array's counter of pulses.
  uint64_t *pulsesBefore() { return pulsesBefore_.data(); }

  /// `verifies`: see TransferStats.
  void saveTo(const Context &context, State &state, const std::string &prefix, bool verifies) const;
  void loadFrom(const Context &context, const State &state, const std::string &prefix,
                bool verifies);

 private:
  void align(const Context &context, const PulsedDevice &to, const TransferFactors &exact, float lr,
             double *aligned, double *squares);

  uint64_t transfers_ = 0;
  Buffer<TransferStats> stats_;    // of the latest transfer and of all
  Buffer<uint64_t> pulsesBefore_;  // one
  Buffer<MissingPart> missing_;    // one
  ScratchBuffer<double> rowSums_;  // see TransferTally
  ScratchBuffer<float> block_;     // rows of T; on a GPU, none
};

// --- on a GPU (cuda/transfer/pulse_transfer.cu)

/// Sums of every row of W: aligned[i] = sum_j w_ij t_ij and, unless null, squares[i] = sum_j t_ij^2
/// with T = lr d x^T, in the order of sumRows() and to its bits.
void cudaAlignRows(const Context &context, MatrixView<const float> weights,
                   const TransferFactors &factors, float lr, double *aligned, double *squares);
void cudaCountTransfer(const Context &context, const TransferTally &tally);

}  // namespace pulsora
