#pragma once

#include "array/pulsed_device.h"
#include "pulses/bit_line_maker.h"

namespace pulsora {

/// W <- W - lr d^T x on an array of any shape, by the pulse type of the parameters: makes the pulse
/// trains of a mini-batch and applies their coincidences.
class PulsedWeightUpdater {
 public:
  /// `key` keys the pulse trains.
  PulsedWeightUpdater(const UpdateParameters &parameters, RandomKey key)
      : parameters_(parameters), key_(key) {
    bitLineMaker_.setCoincidencesAlone(true);
  }

  /// Updates by x [m, cols] and d [m, rows]. Samples are numbered from `firstSample`; splitting a
  /// batch leaves the bits unchanged (with pulse_type = "none_with_device" only for Bounds::Later).
  void update(const Context &context, PulsedDevice &device, MatrixView<const float> x,
              MatrixView<const float> d, float lr, uint64_t firstSample,
              Bounds bounds = Bounds::Now);
  /// update() for a mini-batch whose number of samples only the GPU knows.
  void update(const Context &context, PulsedDevice &device, MatrixView<const float> x,
              MatrixView<const float> d, float lr, const SampleRange &samples,
              Bounds bounds = Bounds::Now);

  /// update() by pulses, with reads of lines on the way (PulsedDevice::applyPulses()).
  void update(const Context &context, PulsedDevice &device, MatrixView<const float> x,
              MatrixView<const float> d, float lr, uint64_t firstSample, const LineTaps &taps,
              float *seen);
  /// Reserves storage for update() of up to `samples` samples, whatever the values of x and d:
  /// update() then cannot run out of memory.
  void reserve(const Context &context, PulsedDevice &device, int64_t samples, float lr);

  /// Makes the pulses of update() for cells that change by `granularity` a pulse; words() then
  /// holds them, for any number of arrays; `slots` as in BitLineMaker::makeWords(). For pulse types
  /// that send pulses.
  void makeWords(const Context &context, float granularity, MatrixView<const float> x,
                 MatrixView<const float> d, float lr, const SampleRange &samples, uint64_t *slots) {
    bitLineMaker_.makeWords(context, x, d, lr, granularity, parameters_, key_, samples, slots);
  }

  /// update() in steps on a GPU, for kernels that serve several arrays at once: see
  /// BitLineMaker::startWords() and trainSides(); afterwards words() holds the pulses.
  PulseTrainJob start(const Context &context, PulsedDevice &device, MatrixView<const float> x,
                      MatrixView<const float> d, float lr, uint64_t firstSample);
  int trainSides(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                 float lr, PulseTrainSide *sides);
  const PulseWords &words() const { return bitLineMaker_.words(); }
  /// Whether the pulse type sends random pulse trains.
  bool sendsTrains() const { return sendsRandomTrains(parameters_.pulse_type); }

  const UpdateParameters &parameters() const { return parameters_; }
  BitLineMaker &bitLineMaker() { return bitLineMaker_; }

 private:
  UpdateParameters parameters_;
  RandomKey key_;
  BitLineMaker bitLineMaker_;
};

/// Describes the pulses of an update by (x, d, lr): pulse train lengths, probabilities, the share
/// of the update that clipped pulse trains lose ("undelivered", of the sum of |lr d x|), and
/// warnings where the share is large or dw_min is too coarse to carry the update, which name the
/// setting `rate` as a remedy. On the host, for `explain`.
Value::Map explainPulses(const Context &context, const UpdateParameters &parameters,
                         float granularity, MatrixView<const float> x, MatrixView<const float> d,
                         float lr, const char *rate = "lr");

}  // namespace pulsora
