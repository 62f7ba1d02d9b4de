#include "core/backend.h"
#include "periphery/block_read.h"
#include "periphery/slice_functors.h"
#include "periphery/stage_calls.h"

// Reads that take the bits of inputs one after another.

namespace pulsora {

void BlockRead::reserveSlices(const Context &context, MatrixView<const float> weights, int64_t rows,
                              bool product) {
  Scratch &s = scratch_;
  s.converted.reserve(context, rows * inSize_);
  s.sums.reserve(context, rows * outSize_);
  s.sliceInputs.reserve(context, rows * inSize_);
  s.sliceOutputs.reserve(context, rows * outSize_);
  s.scale.reserve(context, rows);
  s.worstScale.reserve(context, rows);
  s.round.reserve(context, rows);
  s.clipped.reserve(context, rows);
  s.inputSums.reserve(context, rows);
  s.inputSquares.reserve(context, rows);
  for (BlockRead &slice : slices_) slice.reserve(context, weights, rows, product);
}

void BlockRead::readSlices(const Context &context, MatrixView<const float> weights,
                           const Product *product, MatrixView<const float> in,
                           MatrixView<float> out, uint64_t firstSample, int64_t firstRow) {
  if (in.rows == 0) return;
  const auto bits = static_cast<int>(parameters_.input_slice_bits);
  const InputSlices slices{bits, parameters_.sliceCount() * bits - parameters_.levelBits()};
  InputStage input = inputStage(in, firstSample, false, firstRow);
  input.nonfiniteFlag = context.nonfiniteFlag;
  input.converter = levelConverter();  // slices have noise
  input.sums = input.squares = nullptr;
  float *sums = scratch_.sums.data() + firstRow * outSize_;
  float *given = scratch_.sliceInputs.data() + firstRow * inSize_;
  float *read = scratch_.sliceOutputs.data() + firstRow * outSize_;
  const bool averages = measureAverages(context, input, firstSample);
  pulsora::convertInputs(context, input, !averages);
  for (size_t k = 0; k < slices_.size(); ++k) {
    const auto slice = static_cast<int>(k);
    forEach(context, in.rows * inSize_,
            SliceInput{input.converted, slices, slice, parameters_.inp_bound, given});
    slices_[k].readBatch(context, weights, product, rowMajor<const float>(given, in.rows, inSize_),
                         rowMajor(read, in.rows, outSize_), firstSample, firstRow);
    const float weight = slices.worth(slice) * levelStep() / parameters_.inp_bound;
    forEach(context, in.rows * outSize_, SliceAdder{read, weight, k == 0, sums});
  }
  if (parameters_.addsSlices()) {
    finishOutputs(context, converterStage(outputStage(out, firstSample, false, firstRow)));
    return;
  }
  forEach(context, in.rows * outSize_,
          SliceResult{sums, input.state.scale, parameters_.out_scale, out});
}

}  // namespace pulsora
