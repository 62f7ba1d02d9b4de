#pragma once

#include <memory>
#include <string>

#include "core/context.h"
#include "core/view.h"
#include "core/state.h"
#include "pulses/update_parameters.h"

namespace RPU {

/// Position in time of a tile: how many samples each direction has seen. Owned by the tile; every
/// draw is keyed by them.
struct Counters {
  uint64_t forwardSamples = 0;
  uint64_t backwardSamples = 0;
  uint64_t updateSamples = 0;
  uint64_t miniBatches = 0;
  uint64_t events =
      0;  // digital writes, resets: what happens to an array besides samples and mini-batches
};

/// What a tile holds: one array or a compound of arrays that together act as a weight [dSize,
/// xSize]. Matrices are on the context's backend: x and dx [m, xSize], d and y [m, dSize]. Callers
/// have checked shapes and values.
class AnalogDevice {
 public:
  virtual ~AnalogDevice() = default;

  virtual int64_t dSize() const = 0;
  virtual int64_t xSize() const = 0;

  /// y = W x, read number c.forwardSamples and up.
  virtual void forward(const Context &context, MatrixView<const float> x, MatrixView<float> y,
                       const Counters &c) = 0;
  /// dx = W^T d.
  virtual void backward(const Context &context, MatrixView<const float> d, MatrixView<float> dx,
                        const Counters &c) = 0;
  /// W <- W - lr d^T x by this device's means. Any split of a mini-batch over calls gives the same
  /// bits.
  virtual void update(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                      float lr, const Counters &c) = 0;
  /// End of a mini-batch: decay, diffusion, schedules that count mini-batches.
  virtual void postUpdate(const Context &context, float lr, const Counters &c) = 0;

  /// The weight that a perfect read would see now.
  virtual void getWeights(const Context &context, MatrixView<float> out) const = 0;
  /// Makes the device represent `weights` as closely as its bounds allow (adapters return to zero
  /// contribution).
  virtual void setWeights(const Context &context, MatrixView<const float> weights,
                          const Counters &c) = 0;

  /// Settings in force and warnings for an update by (x, d, lr); nothing changes (tile.explain).
  virtual Value::Map explain(const Context &context, MatrixView<const float> x,
                             MatrixView<const float> d, float lr) const = 0;
  /// Numbers gathered so far: pulses, transfers and their fidelity, saturated cells, memory.
  virtual Value::Map statistics(const Context &context) const = 0;

  virtual void saveTo(const Context &context, State &state, const std::string &prefix) const = 0;
  virtual void loadFrom(const Context &context, const State &state, const std::string &prefix) = 0;
};

}  // namespace RPU
