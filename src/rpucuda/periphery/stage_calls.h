#pragma once

#include "core/context.h"
#include "periphery/quiet_input.h"
#include "periphery/read_stages.h"

// The stages of a read for all rows of a list, on the device of a context.

namespace pulsora {

/// Sets the state of each row before its first read.
void measureInputs(const Context &context, const InputStage &stage);
/// Converts inputs by the DAC; with measureFirst, after measureInputs().
void convertInputs(const Context &context, const InputStage &stage, bool measureFirst);
/// Converts inputs without noise, in units of the inputs.
void convertQuietly(const Context &context, const QuietInput &quiet);
/// Makes results from the sums of a product.
void finishOutputs(const Context &context, const OutputStage &stage);

}  // namespace pulsora
