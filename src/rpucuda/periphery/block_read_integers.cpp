#include <algorithm>
#include <cmath>
#include <vector>

#include "array/events.h"
#include "core/backend.h"
#include "core/isa_dispatch.h"
#include "linalg/integer_product.h"
#include "linalg/math_util.h"
#include "periphery/block_read.h"
#include "periphery/gpu_read.h"
#include "periphery/read_kernels.h"

// Reads whose products are sums of integers.

namespace pulsora {

void BlockRead::setWeightBound(double bound) {
  weightBound_ = bound;
  integers_ = {};
  for (BlockRead &slice : slices_) slice.setWeightBound(bound);
  if (slices_.empty() && whyNoIntegers().empty())
    integers_ = integerWeights(parameters_.integerBits(), bound);
}

std::string BlockRead::whyNoIntegers() const {
  if (!slices_.empty()) return slices_.front().whyNoIntegers();
  std::string reason = parameters_.whyNoIntegers();
  if (!reason.empty()) return reason;
  const int bits = parameters_.integerBits();
  if (bits == 0) return "weight_bits is 32";
  const IntegerWeights integers = integerWeights(bits, weightBound_);
  if (!integers.exist()) return message("weights have no bound (", weightBound_, ")");
  if (!areExact(integers, inSize_, parameters_.largestLevel()))
    return message(inSize_, " inputs of ", parameters_.largestLevel(),
                   " levels each, whose sum may exceed ", kExactBits, " bits");
  return {};
}

LevelBytes BlockRead::levelBytes(int64_t rows) {
  const int64_t pitch = (inSize_ + kByteInputs - 1) / kByteInputs * kByteInputs;
  return {scratch_.bytes.data(), pitch, hasLevelsOfOneByte() ? 0 : rows * pitch};
}

bool BlockRead::needsFloats(bool inIntegers) const {
  return !inIntegers || !onCpu_ || parameters_.ir_drop > 0.0f || hasCellNoise() ||
         !asymmetry_.empty() || needsInputSums();
}

// The sums of products of integers, of all rows of the converted inputs.
void BlockRead::multiplyIntegers(const Context &context, MatrixView<const float> weights,
                                 int64_t firstRow, MatrixView<float> out) {
  const float unit = levelStep() * integers_.step;
  if (!onCpu_) {
    const DigitMemory digits{scratch_.digits.data(), scratch_.digitBytes};
    const IntegerSums to{out.data, scratch_.partial.data(), scratch_.parts, unit, true, digits};
    cudaMultiplyIntegers(context, levelBytes(out.rows), out.rows, weights, integers_, to, false);
    return;
  }
  const auto levels =
      rowMajor<const int16_t>(scratch_.levels.data() + firstRow * inSize_, out.rows, inSize_);
  integerProduct(levels, parameters_.largestLevel(), weights, integers_, unit, out,
                 context.cpu.threads, context.cpu.isa);
}

// Negative inputs count 1 - inp_asymmetry as much as positive ones, of which `rows` rows are first.
void BlockRead::applyAsymmetry(const Context &context, int64_t rows) {
  const float factor = 1.0f - parameters_.inp_asymmetry;
  const bool joins = passCount() == 1;
  const auto apply = [&](ScratchBuffer<float> &sums, bool used, int64_t cols, float by) {
    if (used) forEach(context, rows * cols, NegativeInputs{sums.data(), rows * cols, by, joins});
  };
  const bool wire = parameters_.ir_drop > 0.0f;
  const InputStage stage = inputStage({}, 0, true);  // which sums of inputs were made
  apply(scratch_.sums, true, outSize_, factor);
  apply(scratch_.absSums, wire, outSize_, factor);
  apply(scratch_.lateSums, wire, outSize_, factor);
  apply(scratch_.squareSums, hasCellNoise(), outSize_, factor * factor);
  apply(scratch_.inputSums, stage.sums != nullptr, 1, factor);
  apply(scratch_.inputSquares, stage.squares != nullptr, 1, factor * factor);
}

}  // namespace pulsora
