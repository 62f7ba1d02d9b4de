#pragma once

#include "lrtt/adapter.h"
#include "lrtt/settings.h"

namespace pulsora {

/// The noise that the adapter's two reads add to an output of the tile, as variances in units of
/// the variance of the read of W.
struct AdapterNoise {
  double first = 0.0;   ///< from the read of the first array, through the second
  double second = 0.0;  ///< from the read of the second array
  double total() const { return first + second; }
};

/// `read` is the read of W, `inner` are the inputs of the second array, whose read and weights are
/// `second`. The noise of a read is proportional to its scale s (noiseScale); s^2 is the sum over
/// blocks of their s^2, so that
///   Var y_i = sigma^2 s_in^2 (1 + alpha^2 (|second_i|^2 + s_inner^2 / s_in^2)).
AdapterNoise adapterNoise(const Context &context, const LRTTSettings &s, const AnalogRead &read,
                          MatrixView<const float> in, MatrixView<const float> inner,
                          const ArrayRead &second);

}  // namespace pulsora
