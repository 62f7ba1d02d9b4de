#pragma once

#include <cstdint>
#include <vector>

#include "core/check.h"
#include "core/context.h"
#include "core/view.h"
#include "noise_models/noise_model.h"
#include "noise_models/programmed_point.h"

namespace pulsora {

struct Counters;

/// The interface of a device whose weights are programmed once, and drift. What reads see is a
/// function of the weights, the tile's seed and number, and the ProgrammedPoint.
class Programmable {
 public:
  /// The name of the tensor of measured conductances in a state, which exists if there are some.
  static constexpr const char *kMeasured = "programming/conductances";
  /// The name of the tensor of setAdcGains(), which exists if there are some.
  static constexpr const char *kAdcGains = "adc_gains";
  /// Names of the state values of the samples that were read at earlier points, which states of
  /// earlier versions lack.
  static constexpr const char *kPastForward = "programming/past_forward_samples";
  static constexpr const char *kPastBackward = "programming/past_backward_samples";

  virtual ~Programmable() = default;

  /// Whether reads see a programmed array.
  virtual bool isProgrammed() const = 0;
  /// Whether weights were written or updated after they were programmed; reads are then a
  /// StateError.
  virtual bool isStale() const = 0;
  /// StateError if the programming is stale.
  void requireCurrent() const {
    PULSORA_CHECK(StateError, !isStale(),
                  "the weights changed after they were programmed, and the programmed array no "
                  "longer stands for them; program it again, or return to the weights by "
                  "unprogram()");
  }
  virtual const ProgrammedPoint &point() const = 0;

  /// Programs the weights; reads see the array at this point. ConfigError for a point that is
  /// beyond the largest numbers, or at a time of which the noise model has no numbers.
  virtual void program(const Context &context, const ProgrammedPoint &point) = 0;
  /// ConfigError unless the noise model has numbers of a time.
  virtual void requireTime(double time) const = 0;
  /// program() to time 0 of an array whose programmed conductances in uS were measured, [dSize,
  /// xSize, devicesOfCell()]; what follows from the number is their drift and their read noise.
  virtual void programMeasured(const Context &context, const float *conductances,
                               uint64_t number) = 0;
  /// Whether the programmed conductances were measured.
  virtual bool isMeasured() const = 0;
  /// Programs the weights as at several points of one chip. A forward read of R m rows, for R
  /// points, then sees point r in rows r m to (r + 1) m, with the bits of drift() to that point and
  /// a read of these rows. Everything else sees the last point.
  virtual void programMany(const Context &context, const std::vector<ProgrammedPoint> &points) = 0;
  /// The number of points that a forward read sees.
  virtual int64_t pointsOfRead() const = 0;
  /// The errors of drift(), whatever the redraw; nothing changes.
  virtual void requireDrift(double time) const = 0;
  /// Lets reads see the programmed array `time` seconds after programming, whatever was seen
  /// before. ConfigError for a time of which the noise model has no numbers; StateError if nothing
  /// is programmed.
  virtual void drift(const Context &context, double time, uint64_t redraw) = 0;
  /// Returns to reads of the weights themselves.
  virtual void unprogram(const Context &context) = 0;

  /// Takes weights, as a layer holds them, before a read. A programming becomes stale. `isSame`:
  /// the weights have not changed since they were taken last.
  virtual void take(const Context &context, MatrixView<const float> weights, bool isSame) = 0;
  /// Lets the next backward reads see the weights as the training read of the mini-batch `number`
  /// saw them (Counters::batch), with the same modification.
  virtual void see(uint64_t number) = 0;
  /// The number of see(), or of the last forward read that trained, and whether the next one
  /// begins a step.
  struct TrainingRead {
    uint64_t number;
    bool isNewStep;
  };
  virtual TrainingRead trainingRead() const = 0;
  /// Returns to an earlier trainingRead(), of before a read that was refused.
  virtual void restore(const TrainingRead &read) = 0;
  /// The weights as they were written.
  virtual MatrixView<const float> written() const = 0;
  /// Devices of a cell, which have neighbouring numbers.
  virtual int64_t devicesOfCell() const = 0;
  /// Writes the conductances of all devices in uS to `out` [dSize, xSize, devicesOfCell()].
  /// StateError if nothing is programmed.
  virtual void getConductances(const Context &context, Conductances which, float *out) = 0;
  /// Writes to `out` the inputs that the array sees of `x` in a forward read, in units of x: as
  /// noise management scales them first and the DAC converts them, without its noise.
  virtual void convertInputs(const Context &context, MatrixView<const float> x,
                             MatrixView<float> out) = 0;
  /// The scale of each output: the weight that uses the whole range of a cell.
  virtual std::vector<float> scales(const Context &context) = 0;
  /// Factor of drift compensation on each output.
  virtual std::vector<float> compensation(const Context &context) const = 0;

  /// Gains of the ADCs of forward reads [arrays with ADCs of their own, dSize]: amplifiers between
  /// the output noise and the ADC, which results are divided by. Empty: 1. ConfigError for a
  /// perfect read, InputError for another size and for gains that are not finite and positive;
  /// nothing changes then.
  virtual void setAdcGains(const Context &context, const std::vector<float> &gains) = 0;
  /// The gains, 1 where none were set.
  virtual std::vector<float> adcGains(const Context &context) const = 0;

  /// Samples that have been read since the last program() or drift(), which number the draws of
  /// reads; null unless the device is programmed.
  virtual Counters *readCounters() = 0;
};

}  // namespace pulsora
