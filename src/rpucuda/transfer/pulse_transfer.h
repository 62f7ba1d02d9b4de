#pragma once

#include <string>

#include "array/pulsed_weight_updater.h"
#include "core/scratch.h"
#include "transfer/cell_verifier.h"
#include "transfer/program_targets.h"
#include "transfer/transfer_ledger.h"
#include "transfer/transfer_plan.h"

namespace pulsora {

/// Adds T = lr d x^T to an array, by pulse trains or digitally, and keeps account of the change
/// that arrived.
///
/// Components are sent in the order 0 ... K - 1, the pulse trains of each in sequence. Draws are
/// keyed by the sample number: pulse train n of attempt s of transfer t is sample (t S + s) K
/// maxTrains + n of the array, where S is TransferRule::sendings(). Passes only set how many pulse
/// trains are sent at a time; the bits do not depend on passes.
///
/// On a GPU the host does not wait: it learns the number of pulse trains and the account only on
/// request.
class PulseTransfer {
 public:
  /// `key` keys the pulse trains.
  PulseTransfer(const Context &context, const TransferRule &rule, RandomKey key);

  const TransferRule &rule() const { return rule_; }

  /// Reserves storage for run() onto `to` with any factors; run() then cannot run out of memory.
  void reserve(const Context &context, PulsedDevice &to);
  /// Makes one transfer onto `to` of `sent`, the factors as they were read; the account compares
  /// the change with the `exact` factors. TransferMode::WriteVerify reads the cells by `verifier`,
  /// or exactly without one. This mode leads the cells to `weights`, a matrix of their size, where
  /// there is one, and to their weights + T else.
  void run(const Context &context, PulsedDevice &to, const TransferFactors &sent,
           const TransferFactors &exact, CellVerifier *verifier = nullptr,
           MatrixView<const float> weights = {});

  /// After a transfer by TransferMode::WriteVerify, with what it left missing: leads the cells to
  /// the targets of RevisedTargets, by a program of its own.
  void revise(const Context &context, PulsedDevice &to, const HeldLines &held,
              CellVerifier *verifier);

  /// The weights that the latest transfer by TransferMode::WriteVerify left missing, as its reads
  /// saw it, a matrix of the size of the array; valid until the next run() or revise(), within
  /// its operation (core/scratch.h).
  MatrixView<const float> missing(const PulsedDevice &to) const {
    return rowMajor<const float>(delta_.data(), to.rows(), to.cols());
  }

  uint64_t count() const { return ledger_.transfers(); }
  /// Number of transfers that there are sample numbers for (array/events.h).
  uint64_t mostTransfers() const;
  const TransferLedger &ledger() const { return ledger_; }

  void saveTo(const Context &context, State &state, const std::string &prefix) const {
    ledger_.saveTo(context, state, prefix, verifies());
  }
  void loadFrom(const Context &context, const State &state, const std::string &prefix) {
    ledger_.loadFrom(context, state, prefix, verifies());
  }

 private:
  bool verifies() const { return rule_.mode == TransferMode::WriteVerify; }
  void send(const Context &context, PulsedDevice &to, const TransferPlanner &plan, int sending,
            CellVerifier *verifier, MatrixView<const float> weights);
  void sendTrains(const Context &context, PulsedDevice &to, const TransferPlanner &plan,
                  int sending);
  void program(const Context &context, PulsedDevice &to, const TransferFactors &factors,
               CellVerifier *verifier, MatrixView<const float> weights);
  void leadToTargets(const Context &context, PulsedDevice &to, uint64_t firstSample,
                     CellVerifier *verifier, const uint32_t *due);
  void writeDigitally(const Context &context, PulsedDevice &to, const TransferFactors &factors);
  /// Sample numbers that an attempt takes, whether it needs them or not.
  uint64_t samplesPerSending() const {
    return static_cast<uint64_t>(rule_.components) * static_cast<uint64_t>(rule_.maxTrains);
  }
  uint64_t firstSample(int sending) const;

  TransferRule rule_;
  PulsedWeightUpdater updater_;
  TransferLedger ledger_;
  PlanMemory plan_;
  ScratchBuffer<float> xDrives_, dDrives_;
  ScratchBuffer<float> delta_;  // of a digital write; targets of TransferMode::WriteVerify
  CellProgrammer programmer_;
};

}  // namespace pulsora
