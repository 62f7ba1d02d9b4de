#pragma once

#include "core/context.h"
#include "core/isa.h"
#include "core/random.h"
#include "core/view.h"
#include "pulses/pulse_trains.h"
#include "pulses/pulse_words.h"
#include "pulses/train_functors.h"

namespace RPU {

/// One side (x or d) of a mini-batch whose pulse trains are to be drawn.
struct TrainSide {
  MatrixView<const float> values;  // [samples, lines]
  const TrainScale *scales;        // per sample
  bool isX;                        // which scale applies
  bool negate;                     // flip the signs
  float step;                      // resolution of probabilities; 0 is exact
  bool stochasticRounding;
  RandomKey key;
  Purpose pulses;
  Purpose rounding;
  uint64_t firstSample;
  const PulseLayout *layout;
  uint32_t firstSlot;      // draws of slot t are those of slot firstSlot + t
  uint32_t *bits;          // [word][line]; the CPU's drawTrains() expects zeros
  uint32_t *signs;         // [word][line]; may be null
  const int64_t *present;  // see SampleRange; may be null

  RPU_HD int64_t samples() const { return present ? *present : values.rows; }
};

/// Most sides of one mini-batch that are drawn at a time: those of two arrays.
constexpr int kMostSides = 6;

/// Where the largest |x| and |d| of each sample are written. `finished` counts blocks; 0 before and
/// after.
struct TrainMaxima {
  float *x;
  float *d;
  uint32_t *finished;
  uint32_t *fault;         // see Context; may be null
  const int64_t *present;  // see SampleRange; may be null
};
/// The scaling of a mini-batch's trains.
struct TrainJob {
  TrainMaxima maxima;
  TrainScaler scaler;
  PulseLayout *layout;
};
/// rowAbsMax(), TrainScaler and LayoutChooser in one launch (cuda/pulses/train_scales.cu). A value
/// that is not finite sets the fault word; while that is set, no sample sends a pulse.
void cudaScaleTrains(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                     const TrainJob &job);
/// Draws the trains of up to kMostSides sides of one mini-batch in one launch
/// (cuda/pulses/draw_trains.cu).
void cudaDrawTrains(const Context &context, const TrainSide *sides, int count);

/// Draws the trains of the samples [begin, end) of a mini-batch's sides, of which the first is x and
/// the others are of d; compiled once per instruction set. `begin` is the first sample of a word.
/// With `coincidencesAlone`, pulses that have no pulse of the other side in their four samples may
/// be missing, and signs of lines without a pulse: cells cannot tell the difference.
template <Isa isa>
void drawTrains(const TrainSide *sides, int count, bool coincidencesAlone, int64_t begin,
                int64_t end);

}  // namespace RPU
