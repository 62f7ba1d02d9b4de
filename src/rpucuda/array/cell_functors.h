#pragma once

#include "array/cell_events.h"
#include "core/view.h"
#include "numerics/half.h"
#include "numerics/random.h"

// The element functors of PulsedDevice.

namespace pulsora {

/// Spreads of an event's parameter over the cells, relative to its mean: 1 + dtod xi, or for reset
/// values xi itself.
struct SpreadSampler {
  RandomKey key;
  Purpose purpose;
  float dtod;
  bool reciprocal;  // of a time constant: rates are stored
  bool standard;    // store xi
  uint16_t *plane;

  PULSORA_HD void operator()(int64_t i) const {
    const Philox4 block = draw(key, Purpose::Construct, static_cast<uint64_t>(i), 0,
                               kFirstIndex + static_cast<uint32_t>(purpose));
    const float xi = normalPair(block.v[0], block.v[1]).z0;
    const float relative = pulsora::abs(pulsora::fma(dtod, xi, 1.0f));
    plane[i] = floatToHalf(standard ? xi : (reciprocal ? 1.0f / relative : relative));
  }

  static constexpr uint32_t kFirstIndex = 1u << 16;  // after the draws of CellDraws
};

/// Adds a matrix of differences to the stored weights.
struct WeightAdder {
  MatrixView<const float> delta;
  float *weights;

  PULSORA_HD void operator()(int64_t i) const {
    weights[i] += delta(i / delta.cols, i % delta.cols);
  }
};

/// Conversion between stored and seen weights: seen = sign of the column (stored - reference).
struct CellFrame {
  const float *reference;  // of each cell; null: none
  const float *signs;      // of each column, 1 or -1; null: all 1
  int64_t cols;

  /// The seen weight of a stored one, and the inverse. Neither result is -0.
  PULSORA_HD float seen(float stored, int64_t i) const {
    const float w = reference ? stored - reference[i] : stored;
    return signs ? pulsora::fma(signs[i % cols], w, 0.0f) : w;
  }
  PULSORA_HD float stored(float seen, int64_t i) const {
    const float v = signs ? pulsora::fma(signs[i % cols], seen, 0.0f) : seen;
    return reference ? v + reference[i] : v;
  }
};

/// Visible weight = the weight that the cell stands for + write_noise_std dw_min xi.
struct VisibleWeight {
  CellFrame frame;
  const float *stored;
  float scale;  // of the write noise; 0: none
  RandomKey key;
  uint64_t event;
  float *visible;
  const uint32_t *fault = nullptr;  // see Context::nonfiniteFlag; may be null

  PULSORA_HD void operator()(int64_t i) const {
    if (fault && *fault) return;
    set(i, scale > 0.0f ? normalOfSample(key, Purpose::WriteNoise, static_cast<uint64_t>(i), event)
                        : 0.0f);
  }

  /// operator() with the normal of the cell and event given.
  PULSORA_HD void set(int64_t i, float xi) const {
    const float w = frame.seen(stored[i], i);
    visible[i] = scale > 0.0f ? pulsora::fma(scale, xi, w) : w;
  }
};

/// The values to store so that cells stand for `from`, before their bounds.
struct StoredWeight {
  CellFrame frame;
  MatrixView<const float> from;
  float *stored;

  PULSORA_HD void operator()(int64_t i) const {
    stored[i] = frame.stored(from(i / from.cols, i % from.cols), i) + 0.0f;
  }
};

/// Converts bounds and steps of stored weights, as four planes (see describeCell), to bounds and
/// steps of the weights that the cells stand for.
struct DescribeSeen {
  CellFrame frame;
  int64_t plane;
  float *out;

  PULSORA_HD void operator()(int64_t i) const {
    const float high = frame.seen(out[i], i);
    const float low = frame.seen(out[plane + i], i);
    const float up = out[2 * plane + i];
    const float down = out[3 * plane + i];
    const bool turned = frame.signs && frame.signs[i % frame.cols] < 0.0f;
    out[i] = turned ? low : high;
    out[plane + i] = turned ? high : low;
    out[2 * plane + i] = turned ? -down : up;
    out[3 * plane + i] = turned ? -up : down;
  }
};

/// values(i, j) *= factors[j] in a gapless matrix, and never -0.
struct ColumnScaler {
  const float *factors;
  int64_t cols;
  float *values;

  PULSORA_HD void operator()(int64_t i) const {
    values[i] = pulsora::fma(values[i], factors[i % cols], 0.0f);
  }
};

/// d scaled by -lr, so that an outer product is a plain accumulation.
struct ScaledCopier {
  MatrixView<const float> from;
  float factor;
  float *to;

  PULSORA_HD void operator()(int64_t i) const {
    // The analyzer assumes a write to a reserved buffer that has no elements.
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference)
    to[i] = factor * from(i / from.cols, i % from.cols);
  }
};

}  // namespace pulsora
