#pragma once

#include "core/view.h"
#include "periphery/line_formulas.h"

// The functors of reads that take the bits of inputs one after another.

namespace pulsora {

/// The inputs of one slice, from levels of the DAC.
struct SliceInput {
  const float *levels;
  InputSlices slices;
  int slice;
  float bound;  // of the DAC
  float *out;

  PULSORA_HD void operator()(int64_t i) const { out[i] = bound * slices.part(levels[i], slice); }
};

/// Adds the readings of a slice, times its weight, to those of the slices before; the first one
/// begins.
struct SliceAdder {
  const float *readings;
  float weight;
  bool begins;
  float *sums;

  PULSORA_HD void operator()(int64_t i) const {
    sums[i] = begins ? weight * readings[i] : fma(weight, readings[i], sums[i]);
  }
};

/// The results from sums over slices, scaled back.
struct SliceResult {
  const float *sums;
  const float *scale;
  float outScale;
  MatrixView<float> out;

  PULSORA_HD void operator()(int64_t i) const {
    const int64_t row = i / out.cols;
    out(row, i - row * out.cols) = sums[i] * (scale[row] * outScale);
  }
};

}  // namespace pulsora
