#pragma once

#include "core/context.h"
#include "core/view.h"

namespace pulsora {

struct Counters;

/// The interface of a low-rank adapter: reads and updates in which a gate weighs the adapter's K
/// components, sample by sample, and transfers outside the schedule.
class GatedAdapter {
 public:
  virtual ~GatedAdapter() = default;

  /// Number K of the adapter's components.
  virtual int64_t rank() const = 0;
  /// The error of a cell that transfers by program and verify accept: the tolerance, or two
  /// deviations of a reading where these are more. 0 for other transfers.
  virtual float tolerance() const = 0;

  /// y = W x + alpha A (gate .* (B x)) with gate [m, K]. `read` [m, K] gets B x as it was read, for
  /// backwardGated(). ConfigError if the device's settings do not allow a gate.
  virtual void forwardGated(const Context &context, MatrixView<const float> x,
                            MatrixView<const float> gate, MatrixView<float> y,
                            MatrixView<float> read, const Counters &c) = 0;
  /// dx = W^T d + alpha B^T (gate .* (A^T d)), and the gate's gradient alpha (B x) .* (A^T d) [m,
  /// K].
  virtual void backwardGated(const Context &context, MatrixView<const float> d,
                             MatrixView<const float> gate, MatrixView<const float> read,
                             MatrixView<float> dx, MatrixView<float> gateGradient,
                             const Counters &c) = 0;
  /// update() for samples whose forward was gated.
  virtual void updateGated(const Context &context, MatrixView<const float> x,
                           MatrixView<const float> d, MatrixView<const float> gate, float lr,
                           const Counters &c) = 0;

  /// Transfers the adapter into W and re-initialises it, whatever the schedule says; the schedule
  /// does not change.
  virtual void transfer(const Context &context) = 0;
  /// transfer() that leaves no part of the weight in the adapter: A is 0 afterwards. With `weights`
  /// [dSize, xSize], W gets these by program and verify instead of what the adapter adds to it;
  /// ConfigError for settings whose transfers are made otherwise.
  virtual void merge(const Context &context, MatrixView<const float> weights) = 0;
  /// Sets the directions [K, inputs] that B is initialised from, for settings that need them
  /// (reinit = 'svd'); B is written at once.
  virtual void setReinitVectors(const Context &context, MatrixView<const float> vectors) = 0;
};

}  // namespace pulsora
