#pragma once

#include "core/context.h"
#include "core/isa.h"
#include "core/view.h"
#include "numerics/random.h"
#include "pulses/pulse_train_functors.h"
#include "pulses/pulse_trains.h"
#include "pulses/pulse_words.h"

namespace pulsora {

/// One side (x or d) of a mini-batch whose pulse trains are to be drawn.
struct PulseTrainSide {
  MatrixView<const float> values;  // [samples, lines]
  const PulseTrainScale *scales;   // per sample
  bool isX;                        // which scale applies
  bool negate;                     // flip the signs
  float step;                      // resolution of probabilities; 0 is exact
  bool stochasticRounding;
  RandomKey key;
  Purpose pulses;
  Purpose rounding;
  uint64_t firstSample;
  const PulseLayout *layout;
  uint32_t firstSlot;      // slot t uses the draws of slot firstSlot + t
  uint32_t *bits;          // [word][line]; the CPU's drawPulseTrains() expects zeros
  uint32_t *signs;         // [word][line]; may be null
  const int64_t *present;  // see SampleRange; may be null

  PULSORA_HD int64_t samples() const { return present ? *present : values.rows; }
};

/// Most sides of one mini-batch that are drawn at a time: the sides of two arrays.
constexpr int kMostSides = 6;

/// Output for the largest |x| and |d| of each sample. `finished` counts blocks; 0 before and after.
struct PulseTrainMaxima {
  float *x;
  float *d;
  uint32_t *finished;
  uint32_t *nonfiniteFlag;  // see Context; may be null
  const int64_t *present;   // see SampleRange; may be null
};
/// The scaling of a mini-batch's pulse trains.
struct PulseTrainJob {
  PulseTrainMaxima maxima;
  PulseTrainScaler scaler;
  PulseLayout *layout;
  uint64_t *slots;  // to which the lengths of all pulse trains are added; may be null
};
/// rowAbsMax(), PulseTrainScaler and LayoutChooser in one launch
/// (cuda/pulses/pulse_train_scales.cu). A value that is not finite sets the non-finite flag; while
/// the flag is set, no sample sends a pulse.
void cudaScalePulseTrains(const Context &context, MatrixView<const float> x,
                          MatrixView<const float> d, const PulseTrainJob &job);
/// Draws the pulse trains of up to kMostSides sides of one mini-batch in one launch
/// (cuda/pulses/draw_pulse_trains.cu).
void cudaDrawPulseTrains(const Context &context, const PulseTrainSide *sides, int count);

/// Draws the pulse trains of the samples [begin, end) of a mini-batch's sides, the first of which
/// is x and the others d; compiled once per instruction set. `begin` is the first sample of a word.
/// With `coincidencesAlone`, pulses that have no pulse of the other side in their four samples may
/// be missing, and signs of lines without a pulse: cells cannot tell the difference.
template <Isa isa>
void drawPulseTrains(const PulseTrainSide *sides, int count, bool coincidencesAlone, int64_t begin,
                     int64_t end);

}  // namespace pulsora
