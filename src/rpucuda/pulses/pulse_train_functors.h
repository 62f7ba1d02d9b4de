#pragma once

#include "core/view.h"
#include "pulses/pulse_trains.h"
#include "pulses/pulse_words.h"

// The element functors with which BitLineMaker prepares pulses.

namespace pulsora {

/// Two-pass pulse type: the slot number at which the second pass of the d lines begins.
constexpr uint32_t kSecondPassSlot = 1u << 20;

/// Slots that the longest pulse train can have with these parameters, whatever the learning rate.
inline int longestTrain(const UpdateParameters &p) {
  return !p.fixed_bl && !p.update_bl_management ? static_cast<int>(kLongestTrain) : p.desired_bl;
}

/// Scale and length of each sample's pulse trains.
struct PulseTrainScaler {
  UpdateParameters parameters;
  float lr;
  float granularity;
  const float *xMax;
  const float *dMax;
  PulseTrainScale *scales;
  int32_t *lengths;

  PULSORA_HD void operator()(int64_t s) const {
    scales[s] = trainScale(parameters, lr, granularity, xMax[s], dMax[s]);
    lengths[s] = scales[s].length;
  }
};

/// The layout that the longest pulse train of a mini-batch needs.
struct LayoutChooser {
  const int32_t *lengths;
  int64_t samples;
  PulseLayout *layout;

  PULSORA_HD void operator()(int64_t) const {
    int longest = 0;
    for (int64_t s = 0; s < samples; ++s) longest = lengths[s] > longest ? lengths[s] : longest;
    *layout = PulseLayout::of(longest);
  }
};

/// Levels of the deterministic pulse types, [sample][line].
struct LevelMaker {
  MatrixView<const float> values;
  const PulseTrainScale *scales;
  const float *largest;
  bool isX;
  bool negate;
  bool counts;
  float step;
  const int64_t *present;  // see SampleRange; may be null
  float *levels;

  PULSORA_HD void operator()(int64_t i) const {
    const int64_t s = i / values.cols;
    if (present && s >= *present) return;  // its values are undefined
    const PulseTrainScale t = scales[s];
    const float level = pulseLevel(values(s, i % values.cols), t, isX ? t.xScale : t.dScale,
                                   largest[s], counts, step);
    // The analyzer assumes a write to a reserved buffer that has no elements.
    levels[i] = negate ? -level : level;  // NOLINT(clang-analyzer-core.NullDereference)
  }
};

}  // namespace pulsora
