#pragma once

#include "core/buffer.h"
#include "core/context.h"
#include "core/random.h"
#include "core/view.h"
#include "pulses/draw_trains.h"
#include "pulses/pulse_trains.h"
#include "pulses/pulse_words.h"
#include "pulses/update_parameters.h"

namespace RPU {

/// What one update call sent, summed over its samples.
struct PulseStats {
  uint64_t samples = 0;
  uint64_t clippedSamples =
      0;  ///< samples of which a line asked for more than a pulse per slot (trainsClip)
  uint64_t slots = 0;  ///< train lengths, summed
  int longest = 0;     ///< longest train
};

/// Turns mini-batches of x [m, xSize] and d [m, dSize] into pulses. Owns the words; one maker
/// serves any number of arrays.
class BitLineMaker {
 public:
  /// Makes the pulses of x and d for an update by -lr * d^T x on cells that move by `granularity`
  /// per pulse. A negative `lr` ascends. Every draw is keyed by (line, firstSample + row, slot), so
  /// batches may be split anywhere. Neither x nor d is kept, unless raw inputs are exposed. Throws
  /// nothing once the arguments have the right shapes.
  void makeWords(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                 float lr, float granularity, const UpdateParameters &parameters, RandomKey key,
                 uint64_t firstSample);
  /// The same for a mini-batch of which the GPU alone knows how many samples are there.
  void makeWords(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                 float lr, float granularity, const UpdateParameters &parameters, RandomKey key,
                 const SampleRange &samples);

  /// The same in two steps on a GPU, for kernels that work for several makers at once: somebody
  /// runs the job that startWords() gives, then draws the sides that trainSides() writes, two or
  /// three (their number comes back). For stochastic pulse types.
  TrainJob startWords(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                      float lr, float granularity, const UpdateParameters &parameters,
                      const SampleRange &samples);
  int trainSides(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                 float lr, const UpdateParameters &parameters, RandomKey key, TrainSide *sides);

  /// The pulses made last; valid until the next makeWords().
  const PulseWords &words() const { return words_; }

  /// With `expose`, every makeWords() and trainSides() from now on also keeps copies of the x and d
  /// that it reads, for algorithms that need the inputs beside their pulses: getXData() and
  /// getDData() are then those of the latest mini-batch. Off at first. It changes no pulse and
  /// costs a copy of x and d per mini-batch. What was kept before is forgotten. (Pulse types None
  /// and NoneWithDevice make no words, so that an updater of such a type keeps nothing.)
  void setExposeRawInputs(bool expose) {
    exposeRawInputs_ = expose;
    rawRows_ = rawXSize_ = rawDSize_ = 0;
  }
  /// x [m, xSize] and d [m, dSize] of the words made last, row major without gaps whatever layout
  /// they came in, in memory of the context's backend and there once the context's stream has run;
  /// 0 x 0 when none were kept. Valid until the next makeWords(), trainSides() or
  /// setExposeRawInputs(). Of a SampleRange with `present`, rows of samples that are not there hold
  /// anything.
  MatrixView<const float> getXData() const;
  MatrixView<const float> getDData() const;

  /// Of the words made last. On CUDA this waits for them.
  PulseStats stats(const Context &context) const;

 private:
  void begin(MatrixView<const float> x, MatrixView<const float> d, const SampleRange &samples);
  TrainScaler scaler(const Context &context, float lr, float granularity,
                     const UpdateParameters &parameters);
  void scaleTrains(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                   const TrainScaler &scaler);
  TrainJob jobOf(const Context &context, const TrainScaler &scaler);
  void fillLevels(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                  bool ascend, const UpdateParameters &parameters);
  void keepRawInputs(const Context &context, MatrixView<const float> x, MatrixView<const float> d);

  bool exposeRawInputs_ = false;
  PulseWords words_;
  Buffer<uint32_t> bits_;        // the bit planes, one after another
  Buffer<float> levels_;         // MeanCount and Implicit: x, then d
  Buffer<float> maxima_;         // per sample: of x, then of d
  Buffer<TrainScale> scales_;    // per sample
  Buffer<int32_t> trainLength_;  // per sample
  Buffer<PulseLayout> layout_;   // one
  Buffer<uint32_t> finished_;    // on a GPU, one (see TrainMaxima)
  Buffer<float> rawX_, rawD_;
  int64_t rawRows_ = 0, rawXSize_ = 0, rawDSize_ = 0;
};

}  // namespace RPU
