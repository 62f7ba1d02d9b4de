#pragma once

#include "core/buffer.h"
#include "core/context.h"
#include "core/isa.h"
#include "periphery/additive_functors.h"
#include "periphery/quiet_input.h"
#include "periphery/read_stages.h"

namespace pulsora {

// The row loops of a read, compiled once per instruction set; each gives the bits of the functors
// of read_stages.h.

/// Measures the rows [begin, end) of the mini-batch, like MeasureRow.
template <Isa isa>
void measureInputs(const InputStage &stage, int64_t begin, int64_t end);

/// Converts the entries [begin, end) of the stage's list, like ConvertInput and SumConverted; with
/// `measure`, each row is measured first (the list must then be all rows).
template <Isa isa>
void convertInputs(const InputStage &stage, bool measure, int64_t begin, int64_t end);

/// Converts the rows [begin, end), like QuietInput.
template <Isa isa>
void convertQuietly(const QuietInput &quiet, int64_t begin, int64_t end);

/// Finishes the entries [begin, end) of the stage's list, like FinishOutput.
template <Isa isa>
void finishOutputs(const OutputStage &stage, int64_t begin, int64_t end);

/// Adds the rows [begin, end), like ScaledAdder.
template <Isa isa>
void addRows(const ScaledAdder &adder, int64_t begin, int64_t end);

/// The first three loops on a GPU (cuda/periphery/read_kernels.cu). Measuring a row also sets the
/// non-finite flag if a value is not finite.
void cudaMeasureInputs(const Context &context, const InputStage &stage);
void cudaConvertInputs(const Context &context, const InputStage &stage, bool measureFirst);
void cudaFinishOutputs(const Context &context, const OutputStage &stage);

/// The best number of partial sums per output for the product of a large array with `rows` rows; 0
/// if cudaMultiplyParts() cannot make the product, also for lack of tf32 (compute capability below
/// 8.0). Otherwise depends on the shape alone.
int64_t cudaProductParts(const Context &context, MatrixView<const float> weights, int64_t rows);
/// The partial sums of a plain read from its converted inputs (cuda/periphery/tensor_product.cu):
/// to the accuracy of single precision if `exact`, else of factors rounded to 11 bits (TF32). With
/// `beside` the launch overlaps the previous kernel, which must not touch inputs, weights or sums.
void cudaMultiplyParts(const Context &context, const PlainRead &read, bool exact, bool beside);

/// integerProduct() (linalg/integer_product.h) on a GPU (cuda/periphery/integer_product.cu), with
/// its bits. With `beside` as in cudaMultiplyParts().
void cudaMultiplyIntegers(const Context &context, const LevelBytes &levels, int64_t rows,
                          MatrixView<const float> weights, const IntegerWeights &integers,
                          const IntegerSums &to, bool beside);
/// Scratch memory, in bytes, with which cudaMultiplyIntegers() is faster for `rows` samples; 0
/// where it takes none.
int64_t cudaDigitBytes(const Context &context, MatrixView<const float> weights, int64_t rows,
                       const IntegerWeights &integers, bool oneByte);
/// The best number of parts for cudaMultiplyIntegers(); more than one only where that is necessary,
/// unless the read is `plain`.
int64_t cudaIntegerParts(MatrixView<const float> weights, int64_t rows, bool oneByte, bool plain);

/// The outputs of the first round of a plain read from its sums, plus the result of an adapter.
void cudaFinishPlain(const Context &context, const PlainRead &read, const AddedRead &added);
/// Repeats the read of rows that left the range of an ADC, until they fit or `repeats` is reached.
void cudaRepeatReads(const Context &context, const PlainRead &read, const AddedRead &added);
/// Whole reads of small arrays, from measuring to the last repetition, in one launch.
/// cudaReadRows() is for few outputs. cudaReadGroups() is for many, plus the result of an adapter;
/// `first` reads the first array of that adapter in the same launch. `marks` is scratch memory of
/// the read.
void cudaReadRows(const Context &context, const PlainRead &read);
void cudaReadGroups(const Context &context, const PlainRead &read, const PlainRead &first,
                    const AddedRead &added, Buffer<uint32_t> &marks);
/// Whole reads of many short rows in one launch (cuda/periphery/short_read.cu).
void cudaReadShortRows(const Context &context, const PlainRead &read, const PlainRead &first,
                       const AddedRead &added);
/// Reserves `marks` for `rows` rows.
void cudaReserveMarks(const Context &context, int64_t rows, Buffer<uint32_t> &marks);
/// Reads the first array of a chain, and converts the result for the second
/// (cuda/periphery/additive_reads.cu). The next kernel may begin before this one ends: it must be
/// cudaMultiplyParts() with `beside`, or wait for this kernel.
void cudaReadBeside(const Context &context, const PlainRead &first, const PlainRead &second);
/// cudaReadBeside() that also measures and converts the inputs of a large array in the same launch.
void cudaConvertBeside(const Context &context, const InputStage &large, const PlainRead &first,
                       const PlainRead &second);

}  // namespace pulsora
