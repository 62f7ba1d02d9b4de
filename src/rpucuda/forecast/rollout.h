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
};

/// Outputs of a rollout; null for outputs that are not wanted.
struct RolloutOutputs {
  float *states = nullptr;       ///< h_1 ... h_J [E, b, J, H]
  float *last = nullptr;         ///< h_J [E, b, H]
  float *mean = nullptr;         ///< mu [E, b, J]
  float *logVariance = nullptr;  ///< lv [E, b, J]
};

/// out [b, X] = rectified(x We + be) with one member's encoder.
void encode(const Context &context, MatrixView<const float> x, MatrixView<const float> encoder,
            VectorView<const float> bias, MatrixView<float> out);

/// J steps of every member. All members get the same `features` [b, inputs]; `first` holds the
/// states h_0 [E, b, H], or is null for 0.
///   pre = f We + be;  x_j = rectified(pre + d_{j-1} We[0, :]) with feedback, else rectified(pre)
///   h_j = unit(x_j, h_{j-1});  d_j = h_j wm;  mu_j = mu_{j-1} + d_j;  lv_j = h_j wv + bv + ln j
/// with d_0 = mu_0 = 0. Steps do not depend on J or on other rows; a row with a NaN gives NaN. On
/// the CPU the bits do not depend on threads or instruction set. InputError for sizes out of range.
void rollout(const Context &context, const EnsembleShape &shape, const EnsembleWeights &weights,
             MatrixView<const float> features, const float *first, int64_t steps, bool feedback,
             const RolloutOutputs &out);

}  // namespace pulsora
