#pragma once

#include <string>

#include "array/pulsed_device.h"
#include "core/buffer.h"
#include "core/scratch.h"
#include "storage/state.h"
#include "transfer/pulse_writer.h"

namespace pulsora {

/// The digital accumulators of ab_update = "accumulated": for each cell of A and B, the change not
/// yet made by pulses. flush() sends whole pulses, line by line. With other settings there are no
/// accumulators, and all functions do nothing.
class AccumulatedUpdate {
 public:
  AccumulatedUpdate(const Context &context, bool used, const PulsedDevice &a,
                    const PulsedDevice &b);

  bool used() const { return used_; }
  /// InputError unless there are random numbers left for so many flushes.
  void requireRoom(uint64_t flushes) const;
  /// Reserves storage for accumulateA() and accumulateB() of up to `samples` samples of d with so
  /// many columns.
  void reserve(const Context &context, int64_t samples, int64_t columns);
  /// Reserves storage for flush() to these arrays.
  void reserveFlush(const Context &context, const PulsedDevice &a, const PulsedDevice &b);
  /// Adds -lr d^T x to the accumulator of A, x [m, K], d [m, outputs]; or of B. A batch may be
  /// split anywhere.
  void accumulateA(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                   float lr);
  void accumulateB(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                   float lr);
  /// Sends the whole pulses of the accumulators, at most `most` to a cell, and subtracts them.
  void flush(const Context &context, PulsedDevice &a, PulsedDevice &b, int most);
  /// Multiplies the columns of A's accumulator by `factors`.
  void turnA(const Context &context, const float *factors);
  /// Sets the accumulators to 0, when the arrays have got other values.
  void reset(const Context &context);
  size_t memoryBytes() const { return a_.values.heldBytes() + b_.values.heldBytes(); }

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
  ScratchBuffer<float> scaled_;
  uint64_t flushes_ = 0;
  uint64_t mostFlushes_;
};

}  // namespace pulsora
