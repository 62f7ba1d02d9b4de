#pragma once

#include "core/context.h"
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

#ifdef PULSORA_CUDA
/// The same on a GPU (cuda/io_kernels.cu). Measuring a row also sets the fault word if a value is not finite.
void cudaMeasureInputs(const Context &context, const InputStage &stage);
void cudaConvertInputs(const Context &context, const InputStage &stage, bool measureFirst);
void cudaFinishOutputs(const Context &context, const OutputStage &stage, bool firstRead);

/// Further rounds of a read of one pass that needs no sums but those of the weights.
struct RepeatedRead {
  InputStage input;
  OutputStage output;
  MatrixView<const float> weights;  // [out, in]
  float *sums;                      // those of `output`
  int32_t *list;                    // room for every row
  int32_t *count;
  int repeats;  // at most
};
/// Reads the rows that left the range of the ADC again, until they fit or `repeats` is reached.
void cudaRepeatReads(const Context &context, const RepeatedRead &read);
#endif

}  // namespace RPU
