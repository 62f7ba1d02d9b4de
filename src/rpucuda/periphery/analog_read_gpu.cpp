#include "periphery/joined_reads.h"
#include "periphery/analog_read.h"
#include "periphery/read_kernels.h"

// What a GPU does in few launches: reads of one pass that need no sums but those of the weights.

namespace RPU {

bool AnalogRead::isPlain(const Product *product) const {
  return !product && passCount() == 1 && parameters_.ir_drop == 0.0f && !hasPcmNoise() &&
         asymmetry_.empty();
}

// Whether effects depend on the sums of a row's inputs, or of their squares.
bool AnalogRead::needsInputSums() const {
  const IOParameters &p = parameters_;
  return p.w_noise > 0.0f || p.v_offset_std > 0.0f || p.r_series > 0.0f;
}

PlainRead AnalogRead::plainRead(MatrixView<const float> weights, const InputStage &input,
                                const OutputStage &output, int repeats) {
  int32_t *list = scratch_.list.data();
  return {input,  output, weights, scratch_.sums.data(), scratch_.parts, list, list + input.in.rows,
          repeats};
}

int AnalogRead::repeats(const InputStage &input) const {
  if (!managesBounds()) return 0;
  return input.state.worstScale ? 1 : parameters_.doublings();
}

bool AnalogRead::joinable(const Context &context) const {
  const IOParameters &p = parameters_;
  return !context.onCpu() && context.gpuProducts != GpuProducts::Reproducible && !p.is_perfect &&
         isPlain(nullptr) && !needsInputSums() &&
         p.noise_management != NoiseManagement::AverageAbsMax;
}

PlainRead AnalogRead::join(const Context &context, MatrixView<const float> weights,
                           MatrixView<const float> in, MatrixView<float> out,
                           uint64_t firstSample) {
  checkShapes(weights, in, out);
  reserve(context, weights, nullptr, in.rows);
  InputStage input = inputStage(in, firstSample);
  input.fault = context.fault;
  return plainRead(weights, input, outputStage(out, firstSample), repeats(input));
}

void AnalogRead::runWithAdapter(const Context &context,
                                MatrixView<const float> weights,
                                MatrixView<const float> in,
                                MatrixView<float> out,
                                uint64_t firstSample,
                                const PlainRead &first,
                                const AddedRead &added) {
  if (in.rows == 0) return;
  const PlainRead plain = join(context, weights, in, out, firstSample);
  if (isSmall(weights, in.rows)) {
    cudaReadGroups(context, plain, first, added, scratch_.marks);
    return;
  }
  // The adapter's first read runs beside the product, if that leaves room on the GPU; else it would
  // hold up the product more than the conversion of the inputs.
  constexpr int64_t kLeavesRoom = int64_t{1} << 21;
  const bool beside = weights.size() <= kLeavesRoom;
  if (beside) {
    cudaConvertInputs(context, plain.input, true);
    cudaReadBeside(context, first, added.read);
  } else {
    cudaConvertBeside(context, plain.input, first, added.read);
  }
  if (!multiplyPlain(context, plain, beside)) multiply(context, weights, nullptr, plain.input.list);
  cudaFinishPlain(context, plain, added);
  if (plain.repeats > 0 || added.read.repeats > 0) cudaRepeatReads(context, plain, added);
}

// Whether one launch is faster than a matrix product with stages before and after.
bool AnalogRead::isSmall(MatrixView<const float> weights, int64_t rows) const {
  constexpr int64_t kMostProducts = int64_t{1} << 25;
  constexpr int64_t kMostRows = int64_t{1} << 18;  // of a mini-batch
  return weights.size() * rows <= kMostProducts && rows <= kMostRows &&
         weights.rows <= (int64_t{1} << 20);
}

// On a GPU, a read of a small array in one launch; true if that is done.
bool AnalogRead::readSmall(const Context &context,
                           const PlainRead &read,
                           const Product *product) {
  if (product || !joinable(context) || !isSmall(read.weights, read.input.in.rows)) return false;
  if (read.weights.rows <= kFewLines) {
    cudaReadRows(context, read);
  } else {
    cudaReadGroups(context, read, {}, {}, scratch_.marks);
  }
  return true;
}

// Into how many parts a GPU divides the sums of the first product; 0 if it does not multiply
// plainly by itself.
int64_t AnalogRead::partsOf(const Context &context,
                            MatrixView<const float> weights,
                            const Product *product,
                            int64_t rows) const {
  const bool takesParts = !context.onCpu() && isPlain(product) && !needsInputSums() &&
                          context.gpuProducts != GpuProducts::Reproducible;
  return takesParts && !isSmall(weights, rows) ? cudaProductParts(weights, rows) : 0;
}

// On a GPU, the sums of the first read of a plain product in parts, beside the kernel before it if
// that does nothing for them; true if that is done.
bool AnalogRead::multiplyPlain(const Context &context,
                               const PlainRead &read,
                               bool beside) {
  if (read.parts == 0) return false;
  const bool rounds = context.gpuProducts == GpuProducts::Tf32 ||
                      (context.gpuProducts == GpuProducts::Tf32Forward && pass_ == Pass::Forward);
  cudaMultiplyParts(context, read, !rounds, beside);
  return true;
}

// On a GPU, the outputs of the first read of a plain product; true if that is done.
bool AnalogRead::finishPlain(const Context &context,
                             const PlainRead &read,
                             const Product *product) {
  if (context.onCpu() || !isPlain(product) || read.input.sums || read.input.squares) return false;
  cudaFinishPlain(context, read, {});
  return true;
}

// On a GPU, all further rounds without the host, where a read is a plain product; true if that is
// done.
bool AnalogRead::repeatOnGpu(const Context &context,
                             const PlainRead &read,
                             const Product *product) {
  if (context.onCpu() || !isPlain(product)) return false;
  cudaRepeatReads(context, read, {});
  return true;
}

}  // namespace RPU
