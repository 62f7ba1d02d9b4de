#include "periphery/block_read.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "array/events.h"
#include "core/backend.h"
#include "linalg/integer_product.h"
#include "linalg/math_util.h"
#include "numerics/abs_max.h"
#include "periphery/gpu_read.h"
#include "periphery/read_kernels.h"
#include "periphery/stage_calls.h"

namespace pulsora {
namespace {

// Argument `index` of the draws for IoConstruct: the spread quantity. Elements are outputs, or
// cells.
enum Spread : uint32_t { kNoiseSpread = 0, kOffsetSpread = 1, kBendSpread = 2, kCellSpread = 3 };

float constructNormal(RandomKey key, Pass pass, int64_t line, Spread what) {
  const Philox4 r = draw(key, Purpose::IoConstruct, static_cast<uint64_t>(line),
                         static_cast<uint64_t>(pass), what);
  return normalPair(r.v[0], r.v[1]).z0;
}

}  // namespace

BlockRead::BlockRead(const Context &context, const IOParameters &parameters, Pass pass,
                     int64_t inSize, int64_t outSize, const ReadKeys &keys)
    : parameters_(parameters),
      pass_(pass),
      inSize_(inSize),
      outSize_(outSize),
      key_(keys.noise),
      onCpu_(context.onCpu()) {
  if (parameters_.is_perfect) return;
  averageMax_ = Buffer<float>::zeros(context, 1);
  if (managesBounds()) repeats_ = Buffer<uint64_t>::zeros(context, 1);
  drawSpreads(context, keys.spreads);
  if (!parameters_.readsSlices()) return;
  for (int k = 0; k < parameters_.sliceCount(); ++k) {
    slices_.emplace_back(context, parameters_.ofSlice(), pass, inSize, outSize, keys);
  }
  setNoiseKey(keys.noise);
}

void BlockRead::drawSpreads(const Context &context, RandomKey spreads) {
  const IOParameters &p = parameters_;
  if (p.is_perfect) return;
  for (BlockRead &slice : slices_) slice.drawSpreads(context, spreads);
  const auto count = static_cast<size_t>(outSize_);
  std::vector<float> lines(3 * count);
  const float bend = p.out_nonlinearity > 0.0f ? p.out_nonlinearity / p.out_bound : 0.0f;
  double bendSum = 0.0;
  for (size_t i = 0; i < count; ++i) {
    const auto normal = [&](Spread what) {
      return constructNormal(spreads, pass_, static_cast<int64_t>(i), what);
    };
    lines[i] = pulsora::abs(p.out_noise * fma(p.out_noise_std, normal(kNoiseSpread), 1.0f));
    lines[count + i] = pulsora::max(p.v_offset_std * normal(kOffsetSpread), 0.0f);
    lines[2 * count + i] =
        pulsora::abs(bend * fma(p.out_nonlinearity_std, normal(kBendSpread), 1.0f));
    bendSum += double(lines[2 * count + i]);
  }
  const double meanBend = outSize_ > 0 ? bendSum / double(outSize_) : 0.0;
  gain_ = static_cast<float>(p.outputGain(meanBend));
  lines_.reserve(context, 3 * outSize_);
  detail::copyFromHost(context, lines_.data(), lines.data(), lines.size() * sizeof(float));
  if (p.w_read_asymmetry_dtod > 0.0f) {
    asymmetry_.reserve(context, outSize_ * inSize_);
    forEach(context, outSize_ * inSize_,
            ReadAsymmetry{spreads, kCellSpread, p.w_read_asymmetry_dtod,
                          rowMajor(asymmetry_.data(), outSize_, inSize_), pass_ == Pass::Backward});
  }
}

void BlockRead::setNoiseKey(RandomKey key) {
  constexpr uint32_t kFirstSlice = 1U << 31;  // no block has such a number
  key_ = key;
  for (size_t k = 0; k < slices_.size(); ++k)
    slices_[k].setNoiseKey(partKey(key, kFirstSlice + static_cast<uint32_t>(k)));
}

void BlockRead::setCellVariance(const float *variance) {
  variance_ = variance;
  for (BlockRead &slice : slices_) slice.setCellVariance(variance);
}

void BlockRead::setOutputGains(const float *gains) {
  gains_ = gains;
  if (parameters_.addsSlices()) return;  // slices have no ADC
  for (BlockRead &slice : slices_) slice.setOutputGains(gains);
}

bool BlockRead::managesBounds() const {
  return parameters_.bound_management != BoundManagement::None && parameters_.out_bound > 0.0f &&
         (pass_ == Pass::Forward || parameters_.bm_backward);
}

bool BlockRead::hasPcmNoise() const {
  return parameters_.w_noise > 0.0f && parameters_.w_noise_type == WeightNoiseType::PcmRead;
}

// What the squares of inputs are multiplied by for the variance of a line's weight noise.
MatrixView<const float> BlockRead::cellVariances() const {
  return variance_ ? rowMajor(variance_, outSize_, inSize_) : magnitudes();
}

MatrixView<const float> BlockRead::magnitudes() const {
  return rowMajor(scratch_.magnitudes.data(), outSize_, inSize_);
}

void BlockRead::runRows(const Context &context, MatrixView<const float> weights,
                        MatrixView<const float> in, MatrixView<float> out, uint64_t firstSample,
                        int64_t firstRow) {
  if (parameters_.is_perfect) {
    gemm(context, 1.0f, in, weights.transposed(), 0.0f, out);
  } else if (!slices_.empty()) {
    readSlices(context, weights, nullptr, in, out, firstSample, firstRow);
  } else {
    readBatch(context, weights, nullptr, in, out, firstSample, firstRow);
  }
}

void BlockRead::run(const Context &context, MatrixView<const float> weights, const Product &product,
                    MatrixView<const float> in, MatrixView<float> out, uint64_t firstSample) {
  if (parameters_.is_perfect) {
    product(in, out);
  } else {
    reserve(context, weights, in.rows, true);
    if (slices_.empty()) {
      readBatch(context, weights, &product, in, out, firstSample, 0);
    } else {
      readSlices(context, weights, &product, in, out, firstSample, 0);
    }
  }
}

bool BlockRead::rowsAreApart(const Context &context) const {
  if (!context.onCpu()) return false;
  return parameters_.is_perfect ||
         (isPlain(false) && parameters_.noise_management != NoiseManagement::AverageAbsMax);
}

// Reads the rows, then repeats the rows that left the range of the ADC. On the CPU only these rows
// are repeated; elsewhere, and for a product that must see whole mini-batches, all rows are: a row
// that fitted keeps its scale and round, so its result repeats to the bit.
void BlockRead::readBatch(const Context &context, MatrixView<const float> weights,
                          const Product *product, MatrixView<const float> in, MatrixView<float> out,
                          uint64_t firstSample, int64_t firstRow) {
  if (in.rows == 0) return;
  prepareWeights(context, weights);
  const bool integers = inIntegers(product != nullptr);
  InputStage input = inputStage(in, firstSample, integers, firstRow);
  input.nonfiniteFlag = context.nonfiniteFlag;
  input.state.repeats = repeatCounter(context, firstSample);
  OutputStage output = outputStage(out, firstSample, integers, firstRow);
  const int repeats = mostRepeats(input);
  const bool plainOnGpu = !context.onCpu() && isPlain(product != nullptr);
  const PlainRead plain = plainRead(weights, input, output, repeats);
  if (plainOnGpu && canBeBatched(context) && fitsOneLaunch(context, weights, in.rows)) {
    readInOneLaunch(context, plain, scratch_.marks);
    return;
  }
  const bool averages = measureAverages(context, input, firstSample);
  if (plainOnGpu) {
    readInStages(context, plain, averages);
    return;
  }
  for (int round = 0;; ++round) {
    pulsora::convertInputs(context, input, round == 0 && !averages);
    multiply(context, weights, product, input.list, firstRow);
    finishOutputs(context, output);
    if (round == repeats) break;
    input.list = output.list =
        rowsToRepeat(context, input.state, in.rows, firstRow, product == nullptr);
    if (input.list.count == 0) break;
  }
}

// Sets the scales of a mini-batch under average_abs_max; false under another noise management.
bool BlockRead::measureAverages(const Context &context, const InputStage &input,
                                uint64_t firstSample) {
  if (parameters_.noise_management != NoiseManagement::AverageAbsMax) return false;
  measureInputs(context, input);
  forEach(context, 1,
          AverageScales{input.state.scale, input.in.rows, parameters_.nm_decay, averageMax_.data(),
                        context.nonfiniteFlag, !isEvaluation(firstSample)});
  return true;
}

bool BlockRead::isPlain(bool product) const {
  return !product && sumCount(inIntegers(product)) == 1 && parameters_.ir_drop == 0.0f &&
         !parameters_.solvesWires() && !hasCellNoise() && asymmetry_.empty();
}

// Whether effects depend on the sums of a row's inputs, or of their squares.
bool BlockRead::needsInputSums() const {
  const IOParameters &p = parameters_;
  return p.w_noise > 0.0f || p.v_offset_std > 0.0f || p.r_series > 0.0f;
}

// Number of parts into which a GPU divides each sum of the first product.
int64_t BlockRead::partsOf(const Context &context, MatrixView<const float> weights, bool product,
                           int64_t rows) const {
  if (context.onCpu()) return 0;
  const bool takesParts = isPlain(product) && !needsInputSums();
  if (inIntegers(product)) {
    return cudaIntegerParts(weights, sumCount(true) * context.rowsOfBatch(rows),
                            hasLevelsOfOneByte(), takesParts);
  }
  return takesParts ? partsOfSums(context, weights, rows) : 0;
}

PlainRead BlockRead::plainRead(MatrixView<const float> weights, const InputStage &input,
                               const OutputStage &output, int repeats) {
  int32_t *list = scratch_.list.data();
  return {input,
          output,
          weights,
          scratch_.sums.data(),
          scratch_.partial.data(),
          scratch_.parts,
          list,
          list + input.in.rows,
          repeats,
          integers_,
          levelStep() * integers_.step,
          {scratch_.digits.data(), scratch_.digitBytes}};
}

int BlockRead::mostRepeats(const InputStage &input) const {
  if (!managesBounds()) return 0;
  return input.state.worstScale ? 1 : parameters_.doublings();
}

uint64_t *BlockRead::repeatCounter(const Context &context, uint64_t firstSample) {
  return context.countsRepeats && !isEvaluation(firstSample) ? repeats_.data() : nullptr;
}

bool BlockRead::canBeBatched(const Context &context) const {
  const IOParameters &p = parameters_;
  const bool anyOrder = integers_.exist() || context.gpuProducts != GpuProducts::Reproducible;
  return !context.onCpu() && anyOrder && !p.is_perfect && isPlain(false) && slices_.empty() &&
         !needsInputSums() && p.noise_management != NoiseManagement::AverageAbsMax;
}

PlainRead BlockRead::plan(const Context &context, MatrixView<const float> weights,
                          MatrixView<const float> in, MatrixView<float> out, uint64_t firstSample) {
  reserve(context, weights, in.rows);
  const bool integers = inIntegers(false);
  InputStage input = inputStage(in, firstSample, integers);
  input.nonfiniteFlag = context.nonfiniteFlag;
  input.state.repeats = repeatCounter(context, firstSample);
  return plainRead(weights, input, outputStage(out, firstSample, integers), mostRepeats(input));
}

void BlockRead::reserve(const Context &context, MatrixView<const float> weights, int64_t rows,
                        bool product) {
  if (parameters_.is_perfect) return;
  if (!slices_.empty()) return reserveSlices(context, weights, rows, product);
  const bool integers = inIntegers(product);
  const int64_t all = sumCount(integers) * rows;
  Scratch &s = scratch_;
  if (needsFloats(integers)) s.converted.reserve(context, all * inSize_);
  if (integers && onCpu_) s.levels.reserve(context, all * inSize_ + 1);
  s.parts = partsOf(context, weights, product, rows);
  if (integers && !onCpu_) {
    const LevelBytes bytes = levelBytes(all);
    s.bytes.reserve(context, std::max(all * bytes.pitch, 2 * bytes.plane));
    if (s.parts > 1) s.partial.reserve(context, s.parts * all * outSize_);
    s.digitBytes = cudaDigitBytes(context, weights, all, integers_, hasLevelsOfOneByte());
    s.digits.reserve(context, s.digitBytes);
  }
  s.sums.reserve(context, std::max(all, integers ? 0 : s.parts * rows) * outSize_);
  s.scale.reserve(context, rows);
  s.worstScale.reserve(context, rows);
  s.round.reserve(context, rows);
  s.clipped.reserve(context, rows);
  s.list.reserve(context, rows + 1);
  s.inputSums.reserve(context, all);
  s.inputSquares.reserve(context, all);
  if (parameters_.ir_drop > 0.0f) {
    s.absSums.reserve(context, all * outSize_);
    s.lateSums.reserve(context, all * outSize_);
  }
  if (hasCellNoise()) s.squareSums.reserve(context, all * outSize_);
  if (parameters_.ir_drop > 0.0f || hasCellNoise()) {
    s.reformed.reserve(context, all * inSize_);
    s.magnitudes.reserve(context, outSize_ * inSize_);
  }
  s.deviation.reserve(context, asymmetry_.size());
  if (parameters_.solvesWires()) reserveWires(context, all, product);
  if (canBeBatched(context)) cudaReserveMarks(context, rows, s.marks);
}

void BlockRead::prepareWeights(const Context &context, MatrixView<const float> weights) {
  if (parameters_.solvesWires()) prepareWires(context, weights);
  if (parameters_.ir_drop > 0.0f || hasPcmNoise()) {
    forEach(context, weights.size(), Magnitudes{weights, scratch_.magnitudes.data()});
  }
  if (!asymmetry_.empty()) {
    forEach(context, weights.size(),
            ReadDeviation{weights, asymmetry_.data(), scratch_.deviation.data()});
  }
}

void BlockRead::multiply(const Context &context, MatrixView<const float> weights,
                         const Product *product, const RowList &list, int64_t firstRow) {
  const bool integers = inIntegers(product != nullptr);
  const float step = integers ? levelStep() : 1.0f;  // of the converted inputs
  // Sums that belong to a product of integers have one order, too.
  Context ordered = context;
  if (integers) ordered.gpuProducts = GpuProducts::Reproducible;
  const int64_t rows = sumCount(integers) * list.count;
  const MatrixView<float> sums =
      rowMajor(scratch_.sums.data() + firstRow * outSize_, rows, outSize_);
  if (integers) {
    multiplyIntegers(context, weights, firstRow, sums);
  } else if (parameters_.solvesWires()) {
    solveWires(context, weights,
               rowMajor<const float>(scratch_.converted.data() + firstRow * inSize_, rows, inSize_),
               sums);
  } else {
    const auto in =
        rowMajor<const float>(scratch_.converted.data() + firstRow * inSize_, rows, inSize_);
    for (int64_t first = 0; first < rows; first += list.count) {
      const auto some = in.block(first, 0, list.count, inSize_);
      const auto out = sums.block(first, 0, list.count, outSize_);
      if (product) {
        (*product)(some, out);
      } else {
        gemm(context, 1.0f, some, weights.transposed(), 0.0f, out);
      }
    }
  }
  if (!asymmetry_.empty()) {
    const auto in = rowMajor<const float>(scratch_.converted.data() + list.count * inSize_,
                                          list.count, inSize_);
    const auto deviation = rowMajor<const float>(scratch_.deviation.data(), outSize_, inSize_);
    gemm(ordered, step, in, deviation.transposed(), 1.0f,
         sums.block(list.count, 0, list.count, outSize_));
  }
  if (parameters_.ir_drop > 0.0f) {
    multiplyReformed(ordered, InputForm::Magnitude, magnitudes(), rows, step,
                     scratch_.absSums.data());
    multiplyReformed(ordered, InputForm::Late, weights, rows, step, scratch_.lateSums.data());
  }
  if (hasCellNoise()) {
    multiplyReformed(ordered, InputForm::Square, cellVariances(), rows, step * step,
                     scratch_.squareSums.data());
  }
  if (integers && parameters_.inp_asymmetry != 0.0f) applyAsymmetry(context, list.count);
}

void BlockRead::multiplyReformed(const Context &context, InputForm form,
                                 MatrixView<const float> weights, int64_t rows, float unit,
                                 float *sums) {
  float *reformed = scratch_.reformed.data();
  forEach(context, rows * inSize_, ReformInput{scratch_.converted.data(), reformed, inSize_, form});
  const MatrixView<const float> in = rowMajor(reformed, rows, inSize_);
  gemm(context, unit, in, weights.transposed(), 0.0f, rowMajor(sums, rows, outSize_));
}

void BlockRead::convertInputs(const Context &context, MatrixView<const float> in,
                              MatrixView<float> out) {
  if (parameters_.is_perfect) {
    copy(context, in, out);
    return;
  }
  scratch_.scale.reserve(context, in.rows);
  float *scale = scratch_.scale.data();
  const InputStage stage = inputStage(in, 0, false);
  rowAbsMax(context, in, scale);
  forEach(context, in.rows, FirstScale{in, stage.rule, averageMax_.data(), scale});
  convertQuietly(context, {in, scale, stage.converter, out});
}

RowList BlockRead::rowsToRepeat(const Context &context, const RowState &state, int64_t rows,
                                int64_t firstRow, bool compact) {
  RowList list{nullptr, rows};
  if (context.onCpu()) {
    int32_t *entries = scratch_.list.data() + firstRow;
    int64_t count = 0;
    for (int64_t i = 0; i < rows; ++i) {
      if (state.clipped[i] != 0) entries[count++] = static_cast<int32_t>(i);
    }
    if (compact || count == 0) list = {entries, count};
  }
  forEach(context, rows, NextRead{state});
  return list;
}

}  // namespace pulsora
