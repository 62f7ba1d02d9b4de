#pragma once

#include <string>

#include "array/pulsed_weight_updater.h"
#include "transfer/transfer_ledger.h"
#include "transfer/transfer_plan.h"

namespace RPU {

/// Adds T = lr d x^T to an array, by trains of pulses or digitally, and keeps account of what
/// arrived.
///
/// The components are sent in the order 0 ... K - 1, each as its trains one after another. Train
/// number n of transfer number t is sample t K maxTrains + n of the array, which keys all draws.
/// Passes only decide how many are sent at a time: they leave the bits as they are.
///
/// On a GPU all of it happens there: how many trains there are, and what arrived, the host learns
/// when it asks.
class PulseTransfer {
 public:
  /// `key` keys the trains.
  PulseTransfer(const Context &context, const TransferRule &rule, RandomKey key);

  const TransferRule &rule() const { return rule_; }

  /// One transfer onto `to` of the factors as they were read, `sent`; the account compares with the
  /// `exact` ones.
  void run(const Context &context, PulsedDevice &to, const TransferFactors &sent,
           const TransferFactors &exact);

  uint64_t count() const { return ledger_.transfers(); }
  const TransferLedger &ledger() const { return ledger_; }

  void saveTo(const Context &context, State &state, const std::string &prefix) const {
    ledger_.saveTo(context, state, prefix);
  }
  void loadFrom(const Context &context, const State &state, const std::string &prefix) {
    ledger_.loadFrom(context, state, prefix);
  }

 private:
  void send(const Context &context, PulsedDevice &to, const TransferPlanner &plan);
  void sendTrains(const Context &context, PulsedDevice &to, const TransferPlanner &plan);
  void writeDigitally(const Context &context, PulsedDevice &to, const TransferFactors &factors);
  uint64_t firstSample() const;

  TransferRule rule_;
  PulsedWeightUpdater updater_;
  TransferLedger ledger_;
  PlanMemory plan_;
  Buffer<float> xDrives_, dDrives_;
};

}  // namespace RPU
