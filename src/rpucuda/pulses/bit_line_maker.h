#pragma once

#include "core/buffer.h"
#include "core/context.h"
#include "core/scratch.h"
#include "core/view.h"
#include "numerics/random.h"
#include "pulses/draw_pulse_trains.h"
#include "pulses/pulse_trains.h"
#include "pulses/pulse_words.h"
#include "pulses/update_parameters.h"

namespace pulsora {

/// Statistics of the pulses of one update call, summed over its samples.
struct PulseStats {
  uint64_t samples = 0;
  uint64_t clippedSamples = 0;  ///< samples that need more than a pulse per slot (trainsClip)
  uint64_t slots = 0;           ///< lengths of pulse trains, summed
  int longest = 0;              ///< longest pulse train
};

/// Turns mini-batches of x [m, xSize] and d [m, dSize] into pulses. Holds the words until the next
/// mini-batch or the end of the operation (core/scratch.h); one maker serves any number of arrays.
class BitLineMaker {
 public:
  /// Makes the pulses of x and d for an update by -lr * d^T x on cells that move by `granularity`
  /// per pulse. A negative `lr` ascends. Every draw is keyed by (line, firstSample + row, slot), so
  /// batches may be split anywhere. Neither x nor d is kept, unless raw inputs are exposed. The
  /// lengths of the pulse trains are added to `slots`, a number in memory of the backend, unless it
  /// is null. Throws nothing once the arguments have the right shapes.
  void makeWords(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                 float lr, float granularity, const UpdateParameters &parameters, RandomKey key,
                 uint64_t firstSample, uint64_t *slots = nullptr);
  /// makeWords() for a mini-batch whose number of samples only the GPU knows.
  void makeWords(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                 float lr, float granularity, const UpdateParameters &parameters, RandomKey key,
                 const SampleRange &samples, uint64_t *slots = nullptr);

  /// Reserves storage for makeWords() of up to `samples` samples of these sizes, whatever the
  /// values of x and d: makeWords() then cannot run out of memory.
  void reserve(const Context &context, int64_t samples, int64_t xSize, int64_t dSize, float lr,
               float granularity, const UpdateParameters &parameters);

  /// makeWords() in two steps on a GPU, for kernels that serve several makers at once: the caller
  /// runs the job that startWords() returns, then draws the two or three sides that trainSides()
  /// writes (it returns their number). For stochastic pulse types.
  PulseTrainJob startWords(const Context &context, MatrixView<const float> x,
                           MatrixView<const float> d, float lr, float granularity,
                           const UpdateParameters &parameters, const SampleRange &samples,
                           uint64_t *slots = nullptr);
  int trainSides(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                 float lr, const UpdateParameters &parameters, RandomKey key,
                 PulseTrainSide *sides);

  /// The pulses of the latest mini-batch; valid until the next makeWords(), within its operation.
  const PulseWords &words() const { return words_; }

  /// With `expose`, every makeWords() and trainSides() from now on also keeps copies of the x and d
  /// that it reads, for algorithms that need inputs as well as pulses: getXData() and getDData()
  /// return the copies of the latest mini-batch. Off at first. It changes no pulse and costs a copy
  /// of x and d per mini-batch. Earlier copies are dropped. (Pulse types None and NoneWithDevice
  /// make no words, so an updater of such a type keeps nothing.)
  void setExposeRawInputs(bool expose) {
    exposeRawInputs_ = expose;
    rawRows_ = rawXSize_ = rawDSize_ = 0;
  }
  /// With `alone`, makeWords() may leave out pulses that no pulse of the other side can meet, and
  /// signs of lines without a pulse, which no cell notices. Off at first.
  void setCoincidencesAlone(bool alone) { coincidencesAlone_ = alone; }
  /// x [m, xSize] and d [m, dSize] of the latest mini-batch, row major without gaps whatever their
  /// layout was, in memory of the context's backend, complete once the context's stream has run;
  /// 0 x 0 if none were kept. Valid until the next makeWords(), trainSides() or
  /// setExposeRawInputs(). Rows beyond the number in SampleRange::present are undefined.
  MatrixView<const float> getXData() const;
  MatrixView<const float> getDData() const;

  /// Statistics of the latest mini-batch, within its operation. On CUDA this waits for its pulses.
  PulseStats stats(const Context &context) const;

 private:
  // The bit planes of a mini-batch, one after another.
  struct Planes {
    int64_t x, d, total;  // words
  };

  static Planes planesOf(const PulseLayout &layout, int64_t samples, int64_t xSize, int64_t dSize,
                         PulseType type);
  void reserveScales(const Context &context, int64_t samples);
  void reserveRawInputs(const Context &context, int64_t x, int64_t d);
  void begin(MatrixView<const float> x, MatrixView<const float> d, const SampleRange &samples);
  PulseTrainScaler scaler(const Context &context, float lr, float granularity,
                          const UpdateParameters &parameters);
  void scalePulseTrains(const Context &context, MatrixView<const float> x,
                        MatrixView<const float> d, const PulseTrainScaler &scaler, uint64_t *slots);
  PulseTrainJob jobOf(const Context &context, const PulseTrainScaler &scaler, uint64_t *slots);
  void fillLevels(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                  bool ascend, const UpdateParameters &parameters);
  void keepRawInputs(const Context &context, MatrixView<const float> x, MatrixView<const float> d);

  bool exposeRawInputs_ = false;
  bool coincidencesAlone_ = false;
  PulseWords words_;
  ScratchBuffer<uint32_t> bits_;           // the bit planes, one after another
  ScratchBuffer<float> levels_;            // MeanCount and Implicit: x, then d
  ScratchBuffer<float> maxima_;            // per sample: of x, then of d
  ScratchBuffer<PulseTrainScale> scales_;  // per sample
  ScratchBuffer<int32_t> trainLength_;     // per sample
  ScratchBuffer<PulseLayout> layout_;      // one
  Buffer<uint32_t> finished_;              // on a GPU, one (see PulseTrainMaxima)
  Buffer<float> rawX_, rawD_;
  int64_t rawRows_ = 0, rawXSize_ = 0, rawDSize_ = 0;
};

}  // namespace pulsora
