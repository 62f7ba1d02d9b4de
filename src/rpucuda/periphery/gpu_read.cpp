#include "periphery/gpu_read.h"

#include "linalg/math_util.h"
#include "periphery/read_kernels.h"

namespace pulsora {
namespace {

// The inputs of a read that is not repeated: products of integers take bytes alone.
InputStage neededInput(const PlainRead &read) {
  InputStage input = read.input;
  const bool isSummed = input.sums || input.squares;
  if (read.integers.exist() && read.repeats == 0 && !isSummed) input.converted = nullptr;
  return input;
}

// Computes the sums of the first product; with `beside`, overlaps the previous kernel, on which the
// product must not depend.
void multiply(const Context &context, const PlainRead &read, bool beside) {
  const int64_t rows = read.input.in.rows;
  if (read.integers.exist()) {
    IntegerSums to = read.integerSums();
    to.joined = read.input.sums || read.input.squares;
    cudaMultiplyIntegers(context, read.input.bytes, rows, read.weights, read.integers, to, beside);
    return;
  }
  if (read.parts > 0) {
    const bool rounds =
        context.gpuProducts == GpuProducts::Tf32 ||
        (context.gpuProducts == GpuProducts::Tf32Forward && read.input.pass == Pass::Forward);
    cudaMultiplyParts(context, read, !rounds, beside);
    return;
  }
  gemm(context, 1.0f, rowMajor<const float>(read.input.converted, rows, read.weights.cols),
       read.weights.transposed(), 0.0f, rowMajor(read.sums, rows, read.weights.rows));
}

}  // namespace

bool areShortRows(const Context &context, MatrixView<const float> weights, int64_t rows) {
  constexpr int64_t kManyRows = 4096;  // threads enough to fill a GPU
  constexpr int64_t kSmallArray = 4096;
  return context.rowsOfBatch(rows) >= kManyRows && weights.size() <= kSmallArray;
}

bool fitsOneLaunch(const Context &context, MatrixView<const float> weights, int64_t rows) {
  if (areShortRows(context, weights, rows)) return true;
  const int64_t all = context.rowsOfBatch(rows);
  constexpr int64_t kMostProducts = int64_t{1} << 23;
  constexpr int64_t kMostRows = int64_t{1} << 18;  // of a mini-batch
  return weights.size() * all <= kMostProducts && all <= kMostRows &&
         weights.rows <= (int64_t{1} << 20);
}

int64_t partsOfSums(const Context &context, MatrixView<const float> weights, int64_t rows) {
  const bool takesParts = context.gpuProducts != GpuProducts::Reproducible;
  return takesParts && !fitsOneLaunch(context, weights, rows)
             ? cudaProductParts(context, weights, context.rowsOfBatch(rows))
             : 0;
}

void readInOneLaunch(const Context &context, const PlainRead &read, Buffer<uint32_t> &marks) {
  if (areShortRows(context, read.weights, read.input.in.rows)) {
    cudaReadShortRows(context, read, {}, {});
  } else if (read.weights.rows <= kFewLines) {
    cudaReadRows(context, read);
  } else {
    cudaReadGroups(context, read, {}, {}, marks);
  }
}

void readInStages(const Context &context, const PlainRead &read, bool isMeasured) {
  cudaConvertInputs(context, neededInput(read), !isMeasured);
  multiply(context, read, false);
  if (read.input.sums || read.input.squares) {
    cudaFinishOutputs(context, read.output);
  } else {
    cudaFinishPlain(context, read, {});
  }
  if (read.repeats > 0) cudaRepeatReads(context, read, {});
}

void readWith(const Context &context, const PlainRead &read, const PlainRead &first,
              const AddedRead &added, Buffer<uint32_t> &marks) {
  if (areShortRows(context, read.weights, read.input.in.rows)) {
    cudaReadShortRows(context, read, first, added);
    return;
  }
  if (fitsOneLaunch(context, read.weights, read.input.in.rows)) {
    cudaReadGroups(context, read, first, added, marks);
    return;
  }
  // `first` is read during the product if the product leaves processors free; else during the
  // conversion of the inputs, which is delayed less.
  constexpr int64_t kLeavesRoom = int64_t{1} << 21;
  const bool beside = read.weights.size() <= kLeavesRoom;
  if (beside) {
    cudaConvertInputs(context, neededInput(read), true);
    cudaReadBeside(context, first, added.read);
  } else {
    cudaConvertBeside(context, neededInput(read), first, added.read);
  }
  multiply(context, read, beside);
  cudaFinishPlain(context, read, added);
  if (read.repeats > 0 || added.read.repeats > 0) cudaRepeatReads(context, read, added);
}

}  // namespace pulsora
