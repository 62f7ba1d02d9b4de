#include "bit_line_maker.h"

#include <algorithm>
#include <vector>

#include "core/backend.h"
#include "core/reduce.h"
#include "math_util.h"
#include "pulse_words_elements.h"
#include "pulse_words_kernel.h"

namespace RPU {
namespace {

void drawSide(const Context &context, const TrainSide &side) {
  if (!context.onCpu()) {
#ifdef PULSORA_CUDA
    cudaDrawTrains(context, side);
#endif
    return;
  }
  const auto drawer = withIsa(context.cpu.isa, [](auto isa) { return &drawTrains<isa>; });
  parallelRange(context, side.values.cols, 64, [&](int64_t begin, int64_t end) { drawer(side, begin, end); });
}

}  // namespace

void BitLineMaker::makeWords(const Context &context, MatrixView<const float> x, MatrixView<const float> d, float lr,
                             float granularity, const UpdateParameters &parameters, RandomKey key,
                             uint64_t firstSample) {
  RPU_CHECK(InputError, x.rows == d.rows, "x has ", x.rows, " samples and d has ", d.rows,
            "; an update needs one d for each x");
  if (exposeRawInputs_) keepRawInputs(context, x, d);
  words_ = PulseWords{};
  words_.samples = x.rows;
  words_.xSize = x.cols;
  words_.dSize = d.cols;
  words_.firstSample = firstSample;
  if (x.rows == 0) return;
  scaleTrains(context, x, d, RPU::abs(lr), granularity, parameters);
  const bool ascend = lr < 0.0f;
  switch (parameters.pulse_type) {
    case PulseType::MeanCount:
    case PulseType::DeterministicImplicit:
      fillLevels(context, x, d, ascend, parameters);
      break;
    default:
      fillWords(context, x, d, ascend, parameters, key);
  }
}

void BitLineMaker::scaleTrains(const Context &context, MatrixView<const float> x, MatrixView<const float> d, float lr,
                               float granularity, const UpdateParameters &parameters) {
  const int64_t m = x.rows;
  maxima_.reserve(context, 2 * m);
  scales_.reserve(context, m);
  trainLength_.reserve(context, m);
  layout_.reserve(context, 1);
  rowAbsMax(context, x, maxima_.data());
  rowAbsMax(context, d, maxima_.data() + m);
  forEach(context, m, TrainScaler{parameters, lr, granularity, maxima_.data(), maxima_.data() + m, scales_.data(),
                                  trainLength_.data()});
  forEach(context, 1, LayoutChooser{trainLength_.data(), m, layout_.data()});
  words_.layout = layout_.data();
  words_.trainLength = trainLength_.data();
}

void BitLineMaker::fillWords(const Context &context, MatrixView<const float> x, MatrixView<const float> d, bool ascend,
                             const UpdateParameters &parameters, RandomKey key) {
  const bool twoPass = parameters.pulse_type == PulseType::Stochastic;
  // On the CPU the layout is known here; elsewhere room is made for the longest that the parameters allow.
  const PulseLayout layout = context.onCpu() ? *layout_.data() : PulseLayout::of(longestTrain(parameters));
  const int64_t words = layout.words(x.rows);
  const int64_t xPlane = words * x.cols + kPulsePadding;
  const int64_t dPlane = words * d.cols + kPulsePadding;
  const int64_t total = 2 * xPlane + (twoPass ? 3 : 2) * dPlane;
  bits_.reserve(context, total);
  detail::fillZero(context, bits_.data(), static_cast<size_t>(total) * sizeof(uint32_t));
  uint32_t *xBits = bits_.data();
  uint32_t *xSigns = xBits + xPlane;
  uint32_t *dBits = xSigns + xPlane;
  uint32_t *dSigns = dBits + dPlane;
  const float step = resolutionStep(parameters.res);
  TrainSide xSide{x,   scales_.data(), true, false, step, parameters.sto_round && step > 0.0f, key, Purpose::XPulse,
                  Purpose::XRound, words_.firstSample, layout, 0, xBits, xSigns};
  TrainSide dSide{d,   scales_.data(), false, ascend, step, parameters.sto_round && step > 0.0f, key, Purpose::DPulse,
                  Purpose::DRound, words_.firstSample, layout, 0, dBits, dSigns};
  drawSide(context, xSide);
  drawSide(context, dSide);
  words_.kind = PulseKind::Words;
  words_.xBits = xBits;
  words_.xSigns = xSigns;
  words_.dBits = dBits;
  words_.dSigns = dSigns;
  if (twoPass) {
    dSide.bits = dSigns + dPlane;
    dSide.signs = nullptr;
    dSide.firstSlot = kSecondPassSlot;
    drawSide(context, dSide);
    words_.kind = PulseKind::TwoPass;
    words_.dBitsNegativeX = dSide.bits;
  }
}

void BitLineMaker::fillLevels(const Context &context, MatrixView<const float> x, MatrixView<const float> d, bool ascend,
                              const UpdateParameters &parameters) {
  const int64_t m = x.rows;
  const bool counts = parameters.pulse_type == PulseType::MeanCount;
  const int64_t xLevels = m * x.cols;
  levels_.reserve(context, xLevels + m * d.cols);
  forEach(context, xLevels, LevelMaker{x, scales_.data(), maxima_.data(), true, false, counts,
                                       resolutionStep(parameters.x_res_implicit), levels_.data()});
  forEach(context, m * d.cols, LevelMaker{d, scales_.data(), maxima_.data() + m, false, ascend, counts,
                                          resolutionStep(parameters.d_res_implicit), levels_.data() + xLevels});
  words_.kind = counts ? PulseKind::MeanCount : PulseKind::Implicit;
  words_.xLevels = levels_.data();
  words_.dLevels = levels_.data() + xLevels;
}

void BitLineMaker::keepRawInputs(const Context &context, MatrixView<const float> x, MatrixView<const float> d) {
  rawX_.reserve(context, x.size());
  rawD_.reserve(context, d.size());
  rawRows_ = x.rows;
  rawXSize_ = x.cols;
  rawDSize_ = d.cols;
  forEach(context, x.size(), MatrixCopier{x, rawX_.data()});
  forEach(context, d.size(), MatrixCopier{d, rawD_.data()});
}

MatrixView<const float> BitLineMaker::getXData() const {
  return rowMajor<const float>(rawX_.data(), rawRows_, rawXSize_);
}

MatrixView<const float> BitLineMaker::getDData() const {
  return rowMajor<const float>(rawD_.data(), rawRows_, rawDSize_);
}

PulseStats BitLineMaker::stats(const Context &context) const {
  PulseStats stats;
  stats.samples = static_cast<uint64_t>(words_.samples);
  std::vector<TrainScale> scales(static_cast<size_t>(words_.samples));
  detail::copyToHost(context, scales.data(), scales_.data(), scales.size() * sizeof(TrainScale));
  for (const TrainScale &scale : scales) {
    stats.slots += static_cast<uint64_t>(scale.length);
    stats.longest = std::max(stats.longest, scale.length);
    stats.clippedSamples += scale.strength > static_cast<float>(scale.length) * (1.0f + 1e-6f);
  }
  return stats;
}

}  // namespace RPU
