#pragma once

#include <cstdint>

#include "core/context.h"
#include "core/view.h"

namespace pulsora {

/// Sizes of an ensemble of gated recurrent units, each behind an encoder of its own.
struct EnsembleShape {
  int64_t members = 1;  ///< E
  int64_t inputs = 0;   ///< features of a row
  int64_t encoded = 0;  ///< X: outputs of the encoder
  int64_t hidden = 0;   ///< H, at most kMostHidden
  /// Whether the state is reset after its product with Un, as in torch and cuDNN, or before.
  bool resetAfter = false;
  /// Whether the heads and the projection read a layer-normalised state.
  bool normalised = false;
  int64_t predicted = 0;  ///< W: width of predicted states, 0 for none
};
constexpr int64_t kMostHidden = 512;
constexpr int64_t kMostSteps = 75;

/// Weights of all members, one member after another, row-major and without gaps, in the backend's
/// memory. Gates are in the order z, r, n.
struct EnsembleWeights {
  const float *encoder = nullptr;          ///< We [E, inputs, X]
  const float *encoderBias = nullptr;      ///< be [E, X]
  const float *input = nullptr;            ///< W [E, X, 3H]
  const float *recurrent = nullptr;        ///< U [E, H, 3H]
  const float *bias = nullptr;             ///< b [E, 3H]
  const float *candidateBias = nullptr;    ///< cn [E, H]; null unless the reset comes after
  const float *heads = nullptr;            ///< wm, wv as columns [E, H, 2]
  const float *logVarianceBias = nullptr;  ///< bv [E]
  const float *stateGain = nullptr;        ///< [E, H]; null unless states are normalised
  const float *stateShift = nullptr;       ///< [E, H]; null unless states are normalised
  const float *projection = nullptr;       ///< P [E, H, W]; null without predicted states
  const float *projectionBias = nullptr;   ///< p [E, W]; null without predicted states
};

/// Variants of a rollout.
struct RolloutOptions {
  /// Share of units that are dropped, below 1: outputs of the encoder, and units of the state that
  /// heads and projection read. A row keeps its mask over all steps.
  float dropout = 0.0f;
  uint64_t seed = 0;  ///< of the masks
  /// Rows of one sample: row i has the mask of row i % rowsPerSample in sample i / rowsPerSample. 0
  /// for one sample of all rows.
  int64_t rowsPerSample = 0;
  /// Whether features, activations and states are rounded to 16 bits (binary16) before products.
  /// Weights are rounded by the caller; sums and the states that steps move have 32 bits.
  bool half = false;
};

/// Outputs of a rollout; null for outputs that are not wanted.
struct RolloutOutputs {
  float *states = nullptr;       ///< h_1 ... h_J [E, b, J, H]
  float *last = nullptr;         ///< h_J [E, b, H]
  float *mean = nullptr;         ///< mu [E, b, J]
  float *logVariance = nullptr;  ///< lv [E, b, J]
  float *predicted = nullptr;    ///< s [E, b, J, W]
};

/// out [b, X] = rectified(x We + be) with one member's encoder.
void encode(const Context &context, MatrixView<const float> x, MatrixView<const float> encoder,
            VectorView<const float> bias, MatrixView<float> out);

/// J steps of every member. All members get the same `features` [b, inputs]; `first` holds the
/// states h_0 [E, b, H], or is null for 0.
///   pre = f We + be;  x_j = rectified(pre + d_{j-1} We[0, :]) with feedback, else rectified(pre)
///   h_j = unit(x_j, h_{j-1});  d_j = y_j wm;  mu_j = mu_{j-1} + d_j;  lv_j = y_j wv + bv + ln j
///   s_j = y_j P + p
/// with d_0 = mu_0 = 0, and y_j = h_j, layer-normalised if the shape says so. With dropout, x_j and
/// y_j are multiplied by the masks. Steps do not depend on J or on other rows; a row with a NaN
/// gives NaN. On the CPU the bits do not depend on threads or instruction set. InputError for sizes
/// out of range.
void rollout(const Context &context, const EnsembleShape &shape, const EnsembleWeights &weights,
             MatrixView<const float> features, const float *first, int64_t steps, bool feedback,
             const RolloutOutputs &out, const RolloutOptions &options = {});

}  // namespace pulsora
