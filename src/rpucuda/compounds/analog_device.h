#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compounds/crossbar.h"
#include "compounds/gated_adapter.h"
#include "core/context.h"
#include "core/view.h"
#include "storage/state.h"

namespace pulsora {

/// Position in time of a tile: how many samples each direction has seen. Owned by the tile; every
/// draw is keyed by them.
struct Counters {
  uint64_t forwardSamples = 0;
  uint64_t backwardSamples = 0;
  uint64_t updateSamples = 0;
  uint64_t miniBatches = 0;
  /// Digital writes and resets: what a caller does to an array besides samples and mini-batches.
  uint64_t events = 0;
};

/// A pulsed array by its name within a device.
struct NamedArray {
  std::string name;
  Crossbar *array;
};

/// What a tile holds: one array, or a compound of arrays that act together as a weight W [dSize,
/// xSize]. Matrices are on the context's backend: x and dx [m, xSize], d and y [m, dSize]. Callers
/// have checked shapes and values.
///
/// A new compound says what its arrays are and how they are read and written; the other functions
/// have defaults made from its arrays, which it may override.
class AnalogDevice {
 public:
  virtual ~AnalogDevice() = default;

  virtual int64_t dSize() const = 0;
  virtual int64_t xSize() const = 0;

  /// Its pulsed arrays in order; empty if it has none. Users and saved states know them by these
  /// names.
  virtual std::vector<NamedArray> arrays() = 0;
  /// The array called `name`; ConfigError, listing the names, if there is none.
  Crossbar &array(const std::string &name);
  const Crossbar &array(const std::string &name) const;

  /// The reads of forward() and backward(). By default, those of its arrays.
  virtual std::vector<AnalogRead *> reads();

  /// y = W x; the first row is sample number c.forwardSamples.
  virtual void forward(const Context &context, MatrixView<const float> x, MatrixView<float> y,
                       const Counters &c) = 0;
  /// dx = W^T d; the first row is sample number c.backwardSamples.
  virtual void backward(const Context &context, MatrixView<const float> d, MatrixView<float> dx,
                        const Counters &c) = 0;
  /// W <- W - lr d^T x, as this device carries it out. The bits do not depend on how a mini-batch
  /// is split over calls.
  virtual void update(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                      float lr, const Counters &c) = 0;
  /// Storage for updates of up to `samples` samples at `lr`, whatever x and d are: they cannot run out
  /// of memory then. A device that needs none, or that may stop between samples, leaves it out.
  virtual void reserveUpdate(const Context &, int64_t /*samples*/, float /*lr*/) {}
  /// Whether an update may be given in parts, with the same bits. By default, unless one of its arrays
  /// merges noise.
  virtual bool updateMayBeCut() const;
  /// End of a mini-batch: decay, diffusion, schedules that count mini-batches. By default, each
  /// array relaxes.
  virtual void postUpdate(const Context &context, float lr, const Counters &c);
  /// Whether update() of that many samples checks x and d for values that are not finite, before
  /// anything changes; if not, the tile checks. (GPU kernels look at every input anyway.)
  virtual bool updateLooksForFaults(const Context &, int64_t /*samples*/) const { return false; }

  /// The weight that a perfect read would see now.
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

  /// Settings in force and warnings for an update by (x, d, lr); nothing changes (tile.explain). By
  /// default, the number of samples, and no warnings.
  virtual Value::Map explain(const Context &context, MatrixView<const float> x,
                             MatrixView<const float> d, float lr) const;
  /// Numbers gathered so far. By default, pulses, saturated cells and bytes of memory, over all
  /// arrays.
  virtual Value::Map statistics(const Context &context) const;

  /// By default, every array is saved under its name.
  virtual void saveTo(const Context &context, State &state, const std::string &prefix) const;
  virtual void loadFrom(const Context &context, const State &state, const std::string &prefix);

  /// Its low-rank adapter; null if it has none.
  virtual GatedAdapter *adapter() { return nullptr; }

 protected:
  /// arrays() of a device that does not change.
  std::vector<NamedArray> arraysOf() const { return const_cast<AnalogDevice *>(this)->arrays(); }
};

}  // namespace pulsora
