#pragma once

#include <string>

#include "array/pulsed_weight_updater.h"
#include "transfer/transfer_ledger.h"
#include "transfer/transfer_plan.h"

namespace pulsora {

/// Adds T = lr d x^T to an array, by trains of pulses or digitally, and keeps account of what
/// arrived.
///
/// Components are sent in the order 0 ... K - 1, the trains of each in sequence. Draws are keyed by
/// the sample number: train n of sending s of transfer t is sample (t S + s) K maxTrains + n of the
/// array, where S is the number of sendings of a transfer. Passes only
/// set how many trains are sent at a time; the bits do not depend on them.
///
/// On a GPU the host does not wait: it learns the number of trains and what arrived only when it
/// asks.
class PulseTransfer {
 public:
  /// `key` keys the trains.
  PulseTransfer(const Context &context, const TransferRule &rule, RandomKey key);

  const TransferRule &rule() const { return rule_; }

  /// Storage for run() onto `to`, whatever the factors are: it cannot run out of memory then.
  void reserve(const Context &context, PulsedDevice &to);
  /// One transfer onto `to` of `sent`, the factors as they were read; the account compares what
  /// arrived with the `exact` factors.
  void run(const Context &context, PulsedDevice &to, const TransferFactors &sent,
           const TransferFactors &exact);

  uint64_t count() const { return ledger_.transfers(); }
  /// How many transfers there are sample numbers for (array/events.h).
  uint64_t mostTransfers() const;
  const TransferLedger &ledger() const { return ledger_; }

  void saveTo(const Context &context, State &state, const std::string &prefix) const {
    ledger_.saveTo(context, state, prefix);
  }
  void loadFrom(const Context &context, const State &state, const std::string &prefix) {
    ledger_.loadFrom(context, state, prefix);
  }

 private:
  void send(const Context &context, PulsedDevice &to, const TransferPlanner &plan, int sending);
  void sendTrains(const Context &context, PulsedDevice &to, const TransferPlanner &plan,
                  int sending);
  void writeDigitally(const Context &context, PulsedDevice &to, const TransferFactors &factors);
  /// Sample numbers that a sending takes, whether it needs them or not.
  uint64_t samplesPerSending() const {
    return static_cast<uint64_t>(rule_.components) * static_cast<uint64_t>(rule_.maxTrains);
  }
  uint64_t firstSample(int sending) const;

  TransferRule rule_;
  PulsedWeightUpdater updater_;
  TransferLedger ledger_;
  PlanMemory plan_;
  Buffer<float> xDrives_, dDrives_;
  Buffer<float> delta_;  // of a digital write
};

}  // namespace pulsora
