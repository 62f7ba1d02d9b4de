#include "periphery/analog_read.h"

#include <algorithm>

#include "core/check.h"
#include "linalg/math_util.h"
#include "periphery/additive_reads.h"
#include "periphery/read_by_rows.h"

namespace pulsora {
namespace {

int64_t widestOf(const std::vector<LineRange> &ranges) {
  int64_t widest = 0;
  for (const LineRange &range : ranges) widest = std::max(widest, range.count);
  return widest;
}

}  // namespace

int64_t countOfRanges(int64_t size, int64_t limit) {
  return limit > 0 && size > limit ? (size - 1) / limit + 1 : 1;
}

std::vector<LineRange> cutLines(int64_t size, int64_t limit) {
  const int64_t count = countOfRanges(size, limit);
  std::vector<LineRange> ranges;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = i * size / count;
    ranges.push_back({first, (i + 1) * size / count - first});
  }
  return ranges;
}

AnalogRead::AnalogRead(const Context &context, const IOParameters &parameters, Pass pass,
                       int64_t inSize, int64_t outSize, const ReadKeys &keys,
                       const ReadLimits &limits)
    : pass_(pass),
      inSize_(inSize),
      outSize_(outSize),
      inputs_(cutLines(inSize, limits.inputs)),
      outputs_(cutLines(outSize, limits.outputs)) {
  blocks_.reserve(inputs_.size() * outputs_.size());
  for (size_t i = 0; i < outputs_.size(); ++i) {
    for (size_t j = 0; j < inputs_.size(); ++j) {
      blocks_.emplace_back(context, parameters, pass, inputs_[j].count, outputs_[i].count,
                           keys.part(numberOf(blocks_.size())));
    }
  }
}

uint32_t AnalogRead::numberOf(size_t block) const {
  const size_t i = block / inputs_.size();
  const size_t j = block % inputs_.size();
  return static_cast<uint32_t>(pass_ == Pass::Forward ? block : j * outputs_.size() + i);
}

MatrixView<const float> AnalogRead::weightsOf(size_t block, MatrixView<const float> weights) const {
  const LineRange &out = outputs_[block / inputs_.size()];
  const LineRange &in = inputs_[block % inputs_.size()];
  // Weights without data only give their shape.
  MatrixView<const float> part{nullptr, out.count, in.count, weights.rowStride, weights.colStride};
  if (weights.data) part.data = &weights(out.first, in.first);
  return part;
}

OneHotRead AnalogRead::oneHot(MatrixView<const float> weights, uint64_t firstSample) {
  PULSORA_CHECK(ConfigError, !isCut(), "a read in blocks has no one-hot read of the whole; make a ",
                "tile for each block");
  return blocks_.front().oneHot(weights, firstSample);
}

void AnalogRead::setNoiseKey(RandomKey key) {
  for (size_t i = 0; i < blocks_.size(); ++i) blocks_[i].setNoiseKey(partKey(key, numberOf(i)));
}

void AnalogRead::drawSpreads(const Context &context, RandomKey spreads) {
  for (size_t i = 0; i < blocks_.size(); ++i)
    blocks_[i].drawSpreads(context, partKey(spreads, numberOf(i)));
}

void AnalogRead::setCellVariance(const float *variance) {
  PULSORA_CHECK(ConfigError, !isCut(), "a read in blocks has no variances of the whole; make a ",
                "tile for each block");
  blocks_.front().setCellVariance(variance);
}

void AnalogRead::setOutputGains(const float *gains) {
  PULSORA_CHECK(ConfigError, !isCut(), "a read in blocks has no gains of the whole; make a tile ",
                "for each block");
  blocks_.front().setOutputGains(gains);
}

void AnalogRead::convertInputs(const Context &context, MatrixView<const float> in,
                               MatrixView<float> out) {
  for (size_t j = 0; j < inputs_.size(); ++j) {
    const LineRange &lines = inputs_[j];
    const size_t block = pass_ == Pass::Forward ? j : j * outputs_.size();
    blocks_[block].convertInputs(context, in.block(0, lines.first, in.rows, lines.count),
                                 out.block(0, lines.first, in.rows, lines.count));
  }
}

void AnalogRead::setWeightBound(double bound) {
  for (BlockRead &block : blocks_) block.setWeightBound(bound);
}

std::string AnalogRead::whyNoIntegers() const {
  for (const BlockRead &block : blocks_) {
    const std::string reason = block.whyNoIntegers();
    if (!reason.empty()) return reason;
  }
  return {};
}

void AnalogRead::reserve(const Context &context, MatrixView<const float> weights, int64_t rows,
                         bool product) {
  for (size_t i = 0; i < blocks_.size(); ++i)
    blocks_[i].reserve(context, weightsOf(i, weights), rows, product);
  if (!isCut()) return;
  const int64_t widest = widestOf(outputs_);
  read_.reserve(context, rows * widest);
  if (context.onCpu()) return;
  packed_.reserve(context, rows * inSize_);
  sum_.reserve(context, rows * widest);
}

void AnalogRead::run(const Context &context, MatrixView<const float> weights,
                     MatrixView<const float> in, MatrixView<float> out, uint64_t firstSample) {
  checkShapes(weights, in, out);
  reserve(context, weights, in.rows);
  readByRows(context, in.rows, stepsOfRow(), rowsAreApart(context),
             [&](const Context &of, int64_t begin, int64_t end) {
               runRows(of, weights, in.block(begin, 0, end - begin, in.cols),
                       out.block(begin, 0, end - begin, out.cols),
                       firstSample + static_cast<uint64_t>(begin), begin);
             });
}

void AnalogRead::runRows(const Context &context, MatrixView<const float> weights,
                         MatrixView<const float> in, MatrixView<float> out, uint64_t firstSample,
                         int64_t firstRow) {
  if (!isCut()) {
    blocks_.front().runRows(context, weights, in, out, firstSample, firstRow);
    return;
  }
  const bool inPlace = context.onCpu();
  const auto given = [&](const LineRange &lines) {
    return in.block(0, lines.first, in.rows, lines.count);
  };
  const auto packed = [&](const LineRange &lines) {
    return rowMajor(packed_.data() + in.rows * lines.first, in.rows, lines.count);
  };
  if (!inPlace) {
    for (const LineRange &lines : inputs_) copy(context, given(lines), packed(lines));
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const int64_t count = outputs_[i].count;
    const MatrixView<float> result = out.block(0, outputs_[i].first, in.rows, count);
    const MatrixView<float> sum = inPlace ? result : rowMajor(sum_.data(), in.rows, count);
    const MatrixView<float> read =
        rowMajor(read_.data() + firstRow * widestOf(outputs_), in.rows, count);
    for (size_t j = 0; j < inputs_.size(); ++j) {
      const size_t block = i * inputs_.size() + j;
      blocks_[block].runRows(context, weightsOf(block, weights),
                             inPlace ? given(inputs_[j]) : packed(inputs_[j]), j == 0 ? sum : read,
                             firstSample, firstRow);
      if (j > 0) addScaled(context, {read.data, 1.0f, sum});
    }
    if (!inPlace) copy(context, sum, result);
  }
}

void AnalogRead::run(const Context &context, MatrixView<const float> weights,
                     const Product &product, MatrixView<const float> in, MatrixView<float> out,
                     uint64_t firstSample) {
  checkShapes(weights, in, out);
  PULSORA_CHECK(ConfigError, !isCut(), "a read of [", outSize_, ", ", inSize_, "] is cut into ",
                blocks_.size(), " blocks, but has one product; set it up without limits");
  blocks_.front().run(context, weights, product, in, out, firstSample);
}

void AnalogRead::checkShapes(MatrixView<const float> weights, MatrixView<const float> in,
                             MatrixView<const float> out) const {
  PULSORA_CHECK(InputError, weights.rows == outSize_ && weights.cols == inSize_, "weights are [",
                weights.rows, ", ", weights.cols, "] where a read of [", outSize_, ", ", inSize_,
                "] is set up");
  PULSORA_CHECK(InputError, in.cols == inSize_ && out.cols == outSize_ && in.rows == out.rows,
                "input [", in.rows, ", ", in.cols, "] and output [", out.rows, ", ", out.cols,
                "] do not fit a read of [", outSize_, ", ", inSize_, "]");
}

bool AnalogRead::rowsAreApart(const Context &context) const {
  return blocks_.front().rowsAreApart(context);  // all blocks have the same periphery
}

int64_t AnalogRead::stepsOfRow() const {
  int64_t steps = 0;
  for (const BlockRead &block : blocks_) steps += block.stepsOfRow();
  return steps;
}

bool AnalogRead::canBeBatched(const Context &context) const {
  return !isCut() && blocks_.front().canBeBatched(context);
}

bool AnalogRead::canBeBatchedWith(const Context &context, const AnalogRead &other) const {
  return canBeBatched(context) && other.canBeBatched(context) &&
         blocks_.front().readsIntegers() == other.blocks_.front().readsIntegers();
}

PlainRead AnalogRead::plan(const Context &context, MatrixView<const float> weights,
                           MatrixView<const float> in, MatrixView<float> out,
                           uint64_t firstSample) {
  checkShapes(weights, in, out);
  return blocks_.front().plan(context, weights, in, out, firstSample);
}

std::vector<float *> AnalogRead::runningMeans() {
  std::vector<float *> means;
  for (BlockRead &block : blocks_) {
    if (float *mean = block.runningMean()) means.push_back(mean);
  }
  return means;
}

std::vector<uint64_t *> AnalogRead::repeats() {
  std::vector<uint64_t *> repeats;
  for (BlockRead &block : blocks_) {
    if (uint64_t *count = block.repeats()) repeats.push_back(count);
  }
  return repeats;
}

ReadCounts AnalogRead::counts(const Context &context, uint64_t samples) const {
  const IOParameters &p = parameters();
  const bool splits = !p.is_perfect && p.splitsSigns();
  const uint64_t slices = p.readsSlices() ? static_cast<uint64_t>(p.sliceCount()) : 1;
  const uint64_t passes = splits ? 2 : slices;
  const bool addsAll = p.addsSlices() || p.mv_type == MvType::PosNegSeparate;
  const uint64_t sums = addsAll ? 1 : passes;
  ReadCounts counts;
  counts.samples = samples;
  counts.arrays = blocks_.size();
  for (const BlockRead &block : blocks_) {
    const uint64_t repeats = block.repeats() ? detail::valueOnHost(context, block.repeats()) : 0;
    const uint64_t reads = samples + repeats;
    const auto inputs = static_cast<uint64_t>(block.inSize());
    const auto outputs = static_cast<uint64_t>(block.outSize());
    counts.repeats += repeats;
    counts.arrayReads += reads * passes;
    counts.cellReads += reads * passes * inputs * outputs;
    counts.dac += reads * passes * inputs;
    counts.adc += reads * sums * outputs;
  }
  return counts;
}

std::string AnalogRead::prefixOf(size_t block, const std::string &prefix) const {
  return isCut() ? prefix + "block_" + std::to_string(block) + "/" : prefix;
}

void AnalogRead::saveTo(const Context &context, State &state, const std::string &prefix) const {
  for (size_t i = 0; i < blocks_.size(); ++i)
    blocks_[i].saveTo(context, state, prefixOf(i, prefix));
}

void AnalogRead::loadFrom(const Context &context, const State &state, const std::string &prefix) {
  for (size_t i = 0; i < blocks_.size(); ++i)
    blocks_[i].loadFrom(context, state, prefixOf(i, prefix));
}

ForwardBackwardPass::ForwardBackwardPass(const Context &context, const IOParameters &forward,
                                         const IOParameters &backward, int64_t dSize, int64_t xSize,
                                         const ReadKeys &keys, const ReadLimits &limits)
    : forward_(context, forward, Pass::Forward, xSize, dSize, keys, limits),
      backward_(context, backward, Pass::Backward, dSize, xSize, keys, limits.reversed()) {}

}  // namespace pulsora
