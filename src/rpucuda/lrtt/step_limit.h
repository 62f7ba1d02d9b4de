#pragma once

#include "core/context.h"
#include "core/scratch.h"
#include "core/view.h"
#include "numerics/math.h"

// The limit of the steps of A and B, lrtt.ab_step_limit.

namespace pulsora {

/// The sums of squares of a sample's x, d, g = B x and e = A^T d (for the adapter of a transposed
/// tile, x and d exchanged).
struct SampleSquares {
  double in;
  double out;
  double g;
  double e;
};

/// The response of an adapter to its own update: how far the updates of A and B by one sample move
/// the output of that sample, against its gradient, in units of the movement by plain SGD with the
/// tile's learning rate,
///   alpha (eta_A |g|^2 / |x|^2 + eta_B |e|^2 / |d|^2) / lr.
struct StepResponse {
  double ofA;  ///< alpha eta_A / lr
  double ofB;  ///< alpha eta_B / lr

  /// The factor, at most 1, on g and e that brings the response down to `limit`; 1 below it. A
  /// sample with x = 0 or d = 0 has no gradient, and a factor of 0 where noise gave it g or e.
  PULSORA_HD double factor(const SampleSquares &s, double limit) const {
    const double asked = ofA * s.g * s.out + ofB * s.e * s.in;
    const double allowed = limit * s.in * s.out;
    return asked > allowed ? allowed / asked : 1.0;
  }
};

/// The square of an element, for sums over a row.
struct SquareTerm {
  MatrixView<const float> of;

  PULSORA_HD double operator()(int64_t i, int64_t j) const {
    const auto value = static_cast<double>(of(i, j));
    return value * value;
  }
};

/// Multiplies element i of g [m, K] and of e by the factor of its sample.
struct StepLimiter {
  StepResponse response;
  double limit;
  int64_t samples;
  int64_t rank;
  const double *squares;  // of in, out, g and e; [4, samples]
  float *g;
  float *e;

  PULSORA_HD double factorOf(int64_t sample) const {
    const double *s = squares + sample;
    return response.factor({s[0], s[samples], s[2 * samples], s[3 * samples]}, limit);
  }
  PULSORA_HD void operator()(int64_t i) const {
    const double factor = factorOf(i / rank);
    g[i] = static_cast<float>(factor * static_cast<double>(g[i]));
    e[i] = static_cast<float>(factor * static_cast<double>(e[i]));
  }
};

/// Limits the steps of updates.
class StepLimit {
 public:
  /// The samples that a limit has concerned.
  struct Effect {
    double limited;     ///< their share
    double meanFactor;  ///< over all samples
  };

  /// Reserves storage for apply() of up to `samples` samples.
  void reserve(const Context &context, int64_t samples) { squares_.reserve(context, 4 * samples); }
  /// Scales the rows of g and e, [m, K] and gapless, of the samples in [m, inputs] and out [m,
  /// outputs] whose response exceeds `limit`. Sums have a fixed order, so that the bits depend
  /// neither on the backend nor on how a mini-batch is cut.
  void apply(const Context &context, const StepResponse &response, double limit,
             MatrixView<const float> in, MatrixView<const float> out, MatrixView<float> g,
             MatrixView<float> e);
  /// The effect of the last apply(), within this operation. Waits for a GPU.
  Effect effect(const Context &context, const StepResponse &response, double limit,
                int64_t samples) const;

 private:
  ScratchBuffer<double> squares_;
};

}  // namespace pulsora
