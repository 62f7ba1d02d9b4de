#pragma once

#include "array/cell_functors.h"
#include "core/buffer.h"
#include "noise_models/cell_encoding.h"
#include "noise_models/noise_model_params.h"
#include "parameters/field_types.h"

// Retention of cells that pulses have trained: which devices stand for a weight, and what a read
// sees of them at an age. Definition: docs/reference/retention.md.

namespace pulsora {

/// The devices that a weight drifts with.
enum class RetentionCell { Pair, TwoSidedPair, Single };
template <>
struct EnumNames<RetentionCell> {
  static constexpr const char *kNames[] = {"pair", "two_sided_pair", "single"};
};

/// The rule of the digital factors on the outputs of a tile that drifts.
enum class RetentionCompensation { None, Global, PerOutput };
template <>
struct EnumNames<RetentionCompensation> {
  static constexpr const char *kNames[] = {"none", "global", "per_output"};
};

/// The encoding of a weight in these devices.
inline CellEncoding cellEncoding(RetentionCell cell) {
  constexpr CellKind kKinds[] = {CellKind::Pair, CellKind::TwoSidedPair, CellKind::Single};
  return cellEncoding(kKinds[static_cast<int>(cell)], FloatList{}, 0);
}

/// How the cells of an array drift; without a model they do not.
struct Retention {
  OptionalNoiseModel model;
  RetentionCell cell = RetentionCell::Pair;
};

/// The age at which an array is read.
struct Age {
  double time = 0.0;    ///< seconds since its cells were last pulsed, written or reset
  uint64_t redraw = 0;  ///< of the reading at that time; each draws read noise of its own
};

/// The start of the time of an age.
enum class AgeFrom {
  LastPulse,
  Now,  ///< the present age of each array
};

/// The retention of an array, and the age at which it is read.
struct Ageing {
  NoiseModelParams model;
  CellEncoding cell;
  float range;      // the weight that stands for g_max
  RandomKey cells;  // of draws that a cell keeps
  Age age = {};
  Buffer<float> seen{};  // weights that a read sees at an age that is not 0
};

/// The weight of a cell without the sign of its column, and the scale in units of which its devices
/// stand for it: the range, or the weight's own magnitude beyond it.
struct ScaledCells {
  const float *stored;
  const float *reference;  // null: none
  float range;

  PULSORA_HD float weight(int64_t i) const {
    return reference ? stored[i] - reference[i] : stored[i];
  }
  PULSORA_HD float scale(float weight) const { return pulsora::max(range, pulsora::abs(weight)); }
};

/// Weights relative to their scales, in [-1, 1].
struct RelativeWeight {
  ScaledCells cells;
  float *out;

  PULSORA_HD void operator()(int64_t i) const {
    const float w = cells.weight(i);
    const float scale = cells.scale(w);
    out[i] = scale > 0.0f ? w / scale : 0.0f;
  }
};

/// Relative weights, after drift, as values to store.
struct DriftedStored {
  ScaledCells cells;
  float *values;

  PULSORA_HD void operator()(int64_t i) const {
    const float w = cells.scale(cells.weight(i)) * values[i];
    values[i] = (cells.reference ? w + cells.reference[i] : w) + 0.0f;  // never -0
  }
};

/// Stored values after drift, as a read sees them: with the write noise that the cells have.
struct SeenAtAge {
  CellFrame frame;
  const float *stored;   // before drift
  const float *visible;  // before drift
  const float *drifted;
  float *seen;  // may be `drifted` or `visible`

  PULSORA_HD void operator()(int64_t i) const {
    const float noise = visible[i] - frame.seen(stored[i], i);
    seen[i] = frame.seen(drifted[i], i) + noise;
  }
};

}  // namespace pulsora
