#pragma once

#include "core/context.h"
#include "core/isa.h"
#include "periphery/one_hot_read.h"

namespace pulsora {

/// Properties of the inputs of one-hot reads, which all outputs share.
struct DrivenInputs {
  const float *driven;    ///< converted inputs of 1
  const float *lateness;  ///< weights in the IR drop
};

/// out[i] = the sum of the magnitudes of the readings of output i over all inputs, for the outputs
/// [begin, end); compiled once per instruction set. The first sample is a multiple of 8.
template <Isa isa>
void sumOneHotLines(const OneHotRead &read, const DrivenInputs &inputs, int64_t begin, int64_t end,
                    double *out);

/// The sum of the magnitudes of the readings of each output, with the bits of sumRows() of
/// OneHotMagnitude.
void sumOneHot(const Context &context, const OneHotRead &read, double *out);

/// sumOneHot() of a read whose first sample is a multiple of 8, on the context's GPU.
void cudaSumOneHot(const Context &context, const OneHotRead &read, double *out);

}  // namespace pulsora
