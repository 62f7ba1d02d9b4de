#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compounds/crossbar.h"
#include "compounds/gated_adapter.h"
#include "compounds/hardware_counts.h"
#include "compounds/programmable.h"
#include "core/context.h"
#include "core/view.h"
#include "storage/state.h"

namespace pulsora {

/// Position in time of a tile: how many samples each direction has seen. Owned by the tile; the
/// counters key every random draw.
struct Counters {
  uint64_t forwardSamples = 0;
  uint64_t backwardSamples = 0;
  uint64_t updateSamples = 0;
  uint64_t miniBatches = 0;
  /// Digital writes and resets of arrays by callers.
  uint64_t events = 0;
  /// In a forward read: number of the first sample of the mini-batch to which the read's rows
  /// belong.
  uint64_t batch = 0;
};

/// A pulsed array by its name within a device.
struct NamedArray {
  std::string name;
  Crossbar *array;
};

/// The device that a tile holds: one array, or a compound of arrays that act together as a weight W
/// [dSize, xSize]. Matrices are on the context's backend: x and dx [m, xSize], d and y [m, dSize].
/// Callers have checked shapes and values.
///
/// A new compound defines its arrays and how they are read and written; the other functions have
/// defaults that use these arrays and may be overridden.
class AnalogDevice {
 public:
  virtual ~AnalogDevice() = default;

  virtual int64_t dSize() const = 0;
  virtual int64_t xSize() const = 0;

  /// Pulsed arrays of the device in order; empty if it has none. Users and saved states refer to
  /// the arrays by these names.
  virtual std::vector<NamedArray> arrays() = 0;
  /// The array called `name`; ConfigError, listing the names, if there is none.
  Crossbar &array(const std::string &name);
  const Crossbar &array(const std::string &name) const;

  /// Lets the parameters of the cells of all arrays be computed from now on.
  void computeCells(const Context &context);
  /// Reserves the memory of computed cells of all arrays in the context's operation.
  void reserveCells(const Context &context) const;

  /// The reads of forward() and backward(). By default, the reads of all arrays.
  virtual std::vector<AnalogRead *> reads();

  /// Tells all reads the largest weights of their arrays, when cells were made or loaded
  /// (AnalogRead::setWeightBound); waits for a GPU. By default, the reads of each array its own.
  virtual void boundReads(const Context &context);

  /// The reason why the products of reads() are in floating point, whatever the parameters of
  /// these reads; empty if there is none.
  virtual std::string whyNoIntegers() const { return {}; }

  /// y = W x; the first row is sample number c.forwardSamples.
  virtual void forward(const Context &context, MatrixView<const float> x, MatrixView<float> y,
                       const Counters &c) = 0;
  /// dx = W^T d; the first row is sample number c.backwardSamples.
  virtual void backward(const Context &context, MatrixView<const float> d, MatrixView<float> dx,
                        const Counters &c) = 0;
  /// Whether a read may be split into several calls, of which Context::batchRows tells the rows of
  /// all, with the same bits.
  virtual bool readsMayBeCut() const { return true; }
  /// W <- W - lr d^T x, as this device carries it out. The bits do not depend on how a mini-batch
  /// is split over calls.
  virtual void update(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                      float lr, const Counters &c) = 0;
  /// Reserves storage for updates of up to `samples` samples at `lr`, whatever x and d are; such
  /// updates then cannot run out of memory. Not needed by a device without such storage, or whose
  /// updates may stop between samples.
  virtual void reserveUpdate(const Context &, int64_t /*samples*/, float /*lr*/) {}
  /// Refuses whatever the update()s by a mini-batch of `samples` samples, at most `longest` in a
  /// call, and its postUpdate() would refuse, before anything changes, and reserves their storage.
  /// By default, reserveUpdate().
  virtual void prepareUpdate(const Context &context, int64_t samples, int64_t longest, float lr);
  /// Whether an update may be split into several calls, of which on a GPU Context::batchRows tells
  /// the samples of all, with the same bits. By default, unless an array merges noise.
  virtual bool updateMayBeCut(const Context &context) const;
  /// End of a mini-batch: decay, diffusion, schedules that count mini-batches. By default, each
  /// array relaxes.
  virtual void postUpdate(const Context &context, float lr, const Counters &c);
  /// Lets cells follow a digital weight [dSize, xSize] by pulses, and ends a mini-batch as
  /// postUpdate() does. A step that is no outer product, such as an optimiser's, is made so.
  /// ConfigError for a device without this; here and in the next function.
  virtual void follow(const Context &context, MatrixView<const float> master, const Counters &c);
  /// Refuses what follow() would refuse, before anything changes, and reserves its storage.
  virtual void prepareFollow(const Context &context);
  /// Programs the array of references to the symmetric points of the cells, as found by `pairs` of
  /// pulses up and down (0: exactly); weights stay, within the bounds. Returns numbers about the
  /// error that is left. ConfigError for a device without references, and for cells without a
  /// symmetric point; nothing has changed then.
  virtual Value::Map calibrate(const Context &context, int64_t pairs, const Counters &c);
  /// Whether update() of that many samples checks x and d for non-finite values before anything
  /// changes; if not, the tile checks. (GPU kernels look at every input anyway.)
  virtual bool updateLooksForFaults(const Context &, int64_t /*samples*/) const { return false; }

  /// Writes the weight that a perfect read would see now to `out`.
  virtual void getWeights(const Context &context, MatrixView<float> out) const = 0;
  /// Makes the device represent `weights` as closely as its bounds allow (adapters return to zero
  /// contribution).
  virtual void setWeights(const Context &context, MatrixView<const float> weights,
                          const Counters &c) = 0;
  /// Writes one array digitally, each cell within its bounds; other arrays stay.
  virtual void writeArray(const Context &context, const std::string &name,
                          MatrixView<const float> weights, const Counters &c);
  /// Resets columns of one array; see PulsedDevice::resetColumns().
  virtual void resetColumns(const Context &context, const std::string &name, int64_t firstCol,
                            int64_t count, float probability, const Counters &c);

  /// Whether an array drifts after it was pulsed (PulsedDevice::retain).
  bool retains() const;
  /// The errors of drift(), before anything changes: ConfigError for a time of which a noise model
  /// has no numbers.
  void requireAge(double time, AgeFrom from) const;
  /// The age of each array, in the order of arrays().
  std::vector<Age> ages() const;
  /// The errors of setAges(), before anything changes: ConfigError for another number of ages, a
  /// time of which an array's model has no numbers, and a reading beyond kMostRedraws.
  void requireAges(const std::vector<Age> &ages) const;
  /// Lets reads see each array at its age, after requireAges(); see PulsedDevice::drift().
  virtual void setAges(const Context &context, const std::vector<Age> &ages);
  /// The rule by which the tile compensates this drift.
  RetentionCompensation ageCompensation() const { return ageCompensation_; }
  void setAgeCompensation(RetentionCompensation rule) { ageCompensation_ = rule; }

  /// Settings in force and warnings for an update by (x, d, lr); nothing changes (tile.explain). By
  /// default, the number of samples, and no warnings.
  virtual Value::Map explain(const Context &context, MatrixView<const float> x,
                             MatrixView<const float> d, float lr) const;
  /// Bytes of weights, cells and buffers. By default, of all arrays.
  virtual size_t memoryBytes() const;
  /// Frees sums that are kept for reads and made again from the arrays. By default, there are none.
  virtual void dropSums() {}
  /// Numbers gathered so far. By default, pulses, saturated cells and bytes of memory, over all
  /// arrays.
  virtual Value::Map statistics(const Context &context) const;
  /// Adds what the hardware did up to the counters `c`. By default, each array takes pulses and
  /// both reads through a periphery of its own.
  virtual void countHardware(const Counters &c, HardwareCounts &counts) const;

  /// By default, every array is saved under its name.
  virtual void saveTo(const Context &context, State &state, const std::string &prefix) const;
  virtual void loadFrom(const Context &context, const State &state, const std::string &prefix);

  /// The device's low-rank adapter; null if it has none.
  virtual GatedAdapter *adapter() { return nullptr; }
  /// The device as an array that is programmed once and drifts; null if it is none.
  virtual Programmable *programmable() { return nullptr; }

 protected:
  /// The end of mini-batch number `event` for these arrays, in memory that they have.
  static void relax(const Context &context, const std::vector<NamedArray> &arrays, uint64_t event);
  /// Cells of the weight matrix.
  uint64_t weightCells() const {
    return static_cast<uint64_t>(dSize()) * static_cast<uint64_t>(xSize());
  }
  /// Counts a step of digital weights: an operation for each cell and sample, and 4 bytes read and
  /// written for each cell and mini-batch.
  void countDigitalUpdates(const Counters &c, HardwareCounts &counts) const {
    counts.addDigital(weightCells() * c.updateSamples, 8 * weightCells() * c.miniBatches);
  }
  /// arrays() of a device that does not change.
  std::vector<NamedArray> arraysOf() const { return const_cast<AnalogDevice *>(this)->arrays(); }

 private:
  RetentionCompensation ageCompensation_ = RetentionCompensation::None;
};

}  // namespace pulsora
