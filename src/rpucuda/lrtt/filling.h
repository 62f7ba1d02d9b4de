#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lrtt/adapter.h"
#include "numerics/math.h"

// Transfers that fall due by themselves, lrtt.transfer_every = 'auto'.

namespace pulsora {

/// |w| of each weight as a share of `reach`, at most 1.
struct ReachTerm {
  MatrixView<const float> weights;
  float reach;

  PULSORA_HD double operator()(int64_t i, int64_t j) const {
    return static_cast<double>(pulsora::min(pulsora::abs(weights(i, j)) / reach, 1.0f));
  }
};

/// The filling of A and B: how far weights have come on their way to the bounds since the last
/// transfer. With m the mean of |w| / reach over the cells of an array (at most 1 per cell), and m0
/// its value after the transfer, it is sqrt((m - m0) / (1 - m0)), or 0 below m0. A transfer is due
/// when the filling of A or B is kFull or more; every kLook mini-batches since the last one it is
/// measured. Sums have a fixed order, so that CPU and GPU decide alike.
class AdapterFilling {
 public:
  static constexpr double kFull = 0.6;
  static constexpr int64_t kLook = 8;
  /// The latest transfers whose times are kept.
  static constexpr size_t kTimes = 64;

  AdapterFilling(const Context &context, const LRTTSettings &settings, const LRTTAdapter &adapter);

  /// Mini-batches since the last transfer.
  int64_t since() const { return since_; }
  /// Whether the end of the next mini-batch measures the filling.
  bool looksNext() const { return (since_ + 1) % kLook == 0; }
  /// Counts mini-batch number `miniBatch`; returns whether a transfer is due at its end, and notes
  /// its time then. Waits for a GPU.
  bool passed(const Context &context, const LRTTAdapter &adapter, uint64_t miniBatch);
  /// To be called after a transfer, and (`transferred` false) after a write of A or B by a caller:
  /// the present weights are the beginning. Waits for a GPU.
  void restart(const Context &context, const LRTTAdapter &adapter, bool transferred);
  /// The filling of A and of B, "a" and "b", and "due", the filling at which a transfer is due.
  Value::Map describe(const Context &context, const LRTTAdapter &adapter) const;
  /// Numbers of mini-batches that the tile had counted when transfers fell due.
  Value::List times() const;

  void saveTo(State &state, const std::string &prefix) const;
  /// StateError for numbers that cannot be; nothing has changed then.
  void loadFrom(const State &state, const std::string &prefix);

 private:
  struct Means {
    double a;
    double b;
  };
  // Sums of the rows of an array, in the memory of the backend and of the host.
  struct Scratch {
    Buffer<double> sums;
    std::vector<double> rows;

    Scratch(const Context &context, const LRTTAdapter &adapter);
    double meanOf(const Context &context, const PulsedDevice &array, float reach);
  };
  Means measure(const Context &context, const LRTTAdapter &adapter, Scratch &scratch) const;

  float reach_;
  Means start_{};
  int64_t since_ = 0;
  std::vector<uint64_t> times_;
  Scratch scratch_;
};

}  // namespace pulsora
