#pragma once

#include <string>

#include "array/pulsed_device.h"
#include "storage/state.h"
#include "transfer/pulse_writer.h"

namespace pulsora {

/// The digital accumulators of ab_update = "accumulated": for each cell of A and B, the change that
/// it is yet to make. Whole pulses of it are sent, line by line. Without that setting it is empty,
/// and nothing here does anything.
class AccumulatedUpdate {
 public:
  AccumulatedUpdate(const Context &context, bool used, const PulsedDevice &a,
                    const PulsedDevice &b);

  bool used() const { return used_; }
  /// InputError unless there are numbers for the draws of so many sendings.
  void requireRoom(uint64_t sendings) const;
  /// Storage for accumulate() of up to `samples` samples of d with so many columns.
  void reserve(const Context &context, int64_t samples, int64_t columns);
  /// A is owed -lr d^T x from now on, x [m, K], d [m, outputs]; B likewise. A batch may be split
  /// anywhere.
  void accumulateA(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                   float lr);
  void accumulateB(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                   float lr);
  /// Sends whole pulses, at most `most` to a cell, and takes them off.
  void send(const Context &context, PulsedDevice &a, PulsedDevice &b, int most);
  /// Multiplies what the columns of A are owed by `factors`.
  void turnA(const Context &context, const float *factors);
  /// Forgets what was meant for values that the arrays no longer have.
  void reset(const Context &context);
  size_t memoryBytes() const { return a_.values.bytes() + b_.values.bytes(); }

  void saveTo(const Context &context, State &state, const std::string &prefix) const;
  void loadFrom(const Context &context, const State &state, const std::string &prefix);

 private:
  struct Accumulator {
    int64_t rows;
    int64_t cols;
    Buffer<float> values;

    MatrixView<float> view() { return rowMajor(values.data(), rows, cols); }
  };
  void accumulate(const Context &context, Accumulator &sum, MatrixView<const float> x,
                  MatrixView<const float> d, float lr);

  bool used_;
  Accumulator a_, b_;
  PulseWriter writer_;
  Buffer<float> scaled_;  // scratch
  uint64_t sendings_ = 0;
  uint64_t mostSendings_;
};

}  // namespace pulsora
