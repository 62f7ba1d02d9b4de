#pragma once

#include "core/isa.h"
#include "core/random.h"
#include "core/view.h"
#include "pulse_trains.h"
#include "pulse_words.h"

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
  PulseLayout layout;
  uint32_t firstSlot;              // draws of slot t are those of slot firstSlot + t
  uint32_t *bits;                  // [word][line], zeroed by the caller
  uint32_t *signs;                 // the same; may be null
};

/// Draws the trains of the lines [begin, end); compiled once per instruction set.
template <Isa isa>
void drawTrains(const TrainSide &side, int64_t begin, int64_t end);

}  // namespace RPU
