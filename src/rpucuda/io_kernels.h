#pragma once

#include "core/isa.h"
#include "io_elements.h"

namespace RPU {

// The row loops of a read, compiled once per instruction set; the same bits as the functors of
// io_elements.h on every one.

/// Measures the rows [begin, end) of the mini-batch, as MeasureRow.
template <Isa isa>
void measureInputs(const InputStage &stage, int64_t begin, int64_t end);

/// Converts the entries [begin, end) of the stage's list, as ConvertInput and SumConverted; with
/// `measure`, each row is measured first (the list must then be all rows).
template <Isa isa>
void convertInputs(const InputStage &stage, bool measure, int64_t begin, int64_t end);

/// Finishes the entries [begin, end) of the stage's list, as FinishOutput.
template <Isa isa>
void finishOutputs(const OutputStage &stage, int64_t begin, int64_t end);

}  // namespace RPU
