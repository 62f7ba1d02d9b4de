#pragma once

#include "compounds/analog_device.h"
#include "core/scratch.h"

namespace pulsora {

/// Drift compensation of a tile of pulsed arrays: digital factors on its outputs, which exact
/// one-hot reads of the whole tile give (docs/reference/retention.md).
class AgeCompensation {
 public:
  AgeCompensation(const Context &context, const AnalogDevice &device);

  bool isOn() const { return rule_ != RetentionCompensation::None; }
  /// To be called before drift: what reads now see is what they are to see after it, if weights
  /// have changed since the last drift. `changes` counts changes of the weights.
  void prepare(const Context &context, const AnalogDevice &device, uint64_t changes);
  /// To be called after drift: measures the factors.
  void measure(const Context &context, const AnalogDevice &device);
  /// Makes all factors 1, as after a digital write of the weights.
  void end(const Context &context);
  /// y(i, j) *= the factor of output j.
  void apply(const Context &context, MatrixView<float> y) const;
  /// d, or d with the factors in scratch memory.
  MatrixView<const float> scaled(const Context &context, MatrixView<const float> d);
  /// The factors, on the host.
  std::vector<float> factors(const Context &context) const;

  void saveTo(const Context &context, State &state) const;
  void loadFrom(const Context &context, const State &state);

 private:
  std::vector<float> readOut(const Context &context, const AnalogDevice &device) const;

  RetentionCompensation rule_;
  int64_t inputs_;
  int64_t outputs_;
  Buffer<float> factor_;    // of each output; empty without compensation
  Buffer<float> baseline_;  // readings of each output that the factors restore
  uint64_t taken_ = 0;      // 1 + changes when the baseline was taken; 0: never
  ScratchBuffer<float> scaled_;
};

}  // namespace pulsora
