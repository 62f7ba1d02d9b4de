#pragma once

#include "core/context.h"
#include "core/scratch.h"
#include "core/view.h"
#include "pulses/bit_line_maker.h"
#include "pulses/update_parameters.h"

namespace pulsora {

/// Numbers of pulses from pulse trains on single lines: line v is driven by 1, and the cells on it
/// by their values. Every write of a transfer by trains is made of these numbers.
class LineTrains {
 public:
  /// Reserves storage for count() of up to `lines` lines with `others` cells each.
  void reserve(const Context &context, int64_t lines, int64_t others, bool columns, float lr,
               float granularity, const UpdateParameters &parameters);
  /// counts[v, k]: pulses, negative ones down, for a change of -lr values(v, k) by steps of
  /// `granularity`. Lines are columns of an array, or its rows; line v is sample firstSample + v.
  /// The lengths of the trains are added to `slots`.
  void count(const Context &context, MatrixView<const float> values, bool columns, float lr,
             float granularity, const UpdateParameters &parameters, RandomKey key,
             uint64_t firstSample, float *counts, uint64_t *slots);

 private:
  BitLineMaker maker_;
  ScratchBuffer<float> ones_;
};

}  // namespace pulsora
