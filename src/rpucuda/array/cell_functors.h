#pragma once

#include "array/cell_events.h"
#include "core/half.h"
#include "core/random.h"
#include "core/view.h"

// The element functors of PulsedDevice.

namespace RPU {

/// Spreads of an event's parameter over the cells, relative to its mean: 1 + dtod xi, or for reset
/// values xi itself.
struct SpreadSampler {
  RandomKey key;
  Purpose purpose;
  float dtod;
  bool reciprocal;  // of a time constant: rates are stored
  bool standard;    // store xi
  uint16_t *plane;

  RPU_HD void operator()(int64_t i) const {
    const Philox4 block = draw(key, Purpose::Construct, static_cast<uint64_t>(i), 0,
                               kFirstIndex + static_cast<uint32_t>(purpose));
    const float xi = normalPair(block.v[0], block.v[1]).z0;
    const float relative = RPU::abs(RPU::fma(dtod, xi, 1.0f));
    plane[i] = floatToHalf(standard ? xi : (reciprocal ? 1.0f / relative : relative));
  }

  static constexpr uint32_t kFirstIndex = 1u << 16;  // after the draws of CellDraws
};

/// Adds a matrix of differences to the stored weights.
struct WeightAdder {
  MatrixView<const float> delta;
  float *weights;

  RPU_HD void operator()(int64_t i) const { weights[i] += delta(i / delta.cols, i % delta.cols); }
};

/// Visible weight = stored weight + write_noise_std dw_min xi.
struct WriteNoise {
  const float *stored;
  float scale;
  RandomKey key;
  uint64_t event;
  float *visible;

  RPU_HD void operator()(int64_t i) const {
    visible[i] =
        RPU::fma(scale, normalOfSample(key, Purpose::WriteNoise, static_cast<uint64_t>(i), event),
                 stored[i]);
  }
};

/// d scaled by -lr, so that an outer product is a plain accumulation.
struct ScaledCopier {
  MatrixView<const float> from;
  float factor;
  float *to;

  RPU_HD void operator()(int64_t i) const {
    // The analyzer takes a reserved buffer of no elements for one that is written to.
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference)
    to[i] = factor * from(i / from.cols, i % from.cols);
  }
};

}  // namespace RPU
