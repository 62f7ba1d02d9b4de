#pragma once

#include <optional>
#include <string>

#include "lrtt/adapter.h"
#include "lrtt/settings.h"
#include "transfer/line_read.h"
#include "transfer/pulse_transfer.h"

namespace pulsora {

/// Adds transfer_lr A B to the visible array: reads the factors exactly or line by line, and sends
/// them as pulse trains.
class LRTTTransfer {
 public:
  LRTTTransfer(const Context &context, const LRTTSettings &settings, const TilePeriphery &periphery,
               const TileKeys &keys);

  /// Tells the reads of A and B the largest weights of these arrays (AnalogRead::setWeightBound).
  void setWeightBounds(double a, double b) {
    readA_.setWeightBound(a);
    readB_.setWeightBound(b);
  }
  /// Reserves storage for run(), which then cannot run out of memory.
  void reserve(const Context &context, PulsedDevice &visible);
  /// Makes one transfer; the adapter does not change. `weights` are those of PulseTransfer::run().
  void run(const Context &context, PulsedDevice &visible, const LRTTAdapter &adapter,
           MatrixView<const float> weights);

  /// PulseTransfer::revise() after the latest transfer, for rows that A holds.
  void revise(const Context &context, PulsedDevice &visible, const LRTTAdapter &adapter);

  /// See PulseTransfer::missing().
  MatrixView<const float> missing(const PulsedDevice &visible) const {
    return sender_.missing(visible);
  }

  /// The reads of lrtt.verify_read = 'analog'; null where cells are read exactly.
  const CellVerifier *verifier() const { return verifier_ ? &*verifier_ : nullptr; }

  /// GatedAdapter::tolerance().
  float tolerance() const;
  uint64_t count() const { return sender_.count(); }
  /// Number of transfers that there are random numbers for.
  uint64_t most() const;
  /// Statistics of the latest transfer, and of all; both wait for a GPU.
  TransferStats latest(const Context &context) const { return sender_.ledger().latest(context); }
  TransferStats total(const Context &context) const { return sender_.ledger().total(context); }

  /// AnalogDevice::countHardware() for the transfers.
  void countHardware(HardwareCounts &counts) const;

  void saveTo(const Context &context, State &state, const std::string &prefix) const;
  void loadFrom(const Context &context, const State &state, const std::string &prefix);

 private:
  TransferFactors readFactors(const Context &context, const LRTTAdapter &adapter);

  LRTTSettings settings_;
  LineRead readA_, readB_;
  PulseTransfer sender_;
  std::optional<CellVerifier> verifier_;
};

}  // namespace pulsora
