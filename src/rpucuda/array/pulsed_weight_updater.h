#pragma once

#include "array/pulsed_device.h"
#include "pulses/bit_line_maker.h"

namespace RPU {

/// W <- W - lr d^T x on an array of any shape, by the pulse type of the parameters: makes the pulse
/// trains of a mini-batch and applies their coincidences.
class PulsedWeightUpdater {
 public:
  /// `key` keys the pulse trains.
  PulsedWeightUpdater(const UpdateParameters &parameters, RandomKey key)
      : parameters_(parameters), key_(key) {}

  /// x [m, cols], d [m, rows]. Samples are numbered from `firstSample`; cutting a batch leaves the
  /// same bits.
  void update(const Context &context, PulsedDevice &device, MatrixView<const float> x,
              MatrixView<const float> d, float lr, uint64_t firstSample);
  /// The same for a mini-batch of which the GPU alone knows how many samples are there.
  void update(const Context &context, PulsedDevice &device, MatrixView<const float> x,
              MatrixView<const float> d, float lr, const SampleRange &samples);

  /// The same in steps on a GPU, for kernels that work for several arrays at once: see
  /// BitLineMaker::startWords() and trainSides(); then words() are there.
  TrainJob start(const Context &context, const PulsedDevice &device, MatrixView<const float> x,
                 MatrixView<const float> d, float lr, uint64_t firstSample);
  int trainSides(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                 float lr, TrainSide *sides);
  const PulseWords &words() const { return bitLineMaker_.words(); }
  /// Whether the pulse type is one of random trains.
  bool sendsTrains() const { return sendsRandomTrains(parameters_.pulse_type); }

  const UpdateParameters &parameters() const { return parameters_; }
  BitLineMaker &bitLineMaker() { return bitLineMaker_; }

 private:
  UpdateParameters parameters_;
  RandomKey key_;
  BitLineMaker bitLineMaker_;
};

/// What an update by (x, d, lr) would send: train lengths, probabilities, and warnings where trains
/// would clip or where dw_min is too coarse or too fine to carry the update. Host-side, for
/// `explain`.
Value::Map explainPulses(const Context &context, const UpdateParameters &parameters,
                         float granularity, MatrixView<const float> x, MatrixView<const float> d,
                         float lr);

}  // namespace RPU
