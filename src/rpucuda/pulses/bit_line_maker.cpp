#include "pulses/bit_line_maker.h"

#include <algorithm>
#include <vector>

#include "core/backend.h"
#include "core/isa_dispatch.h"
#include "linalg/math_util.h"
#include "numerics/abs_max.h"
#include "pulses/draw_pulse_trains.h"
#include "pulses/pulse_train_functors.h"

namespace pulsora {
namespace {

constexpr int64_t kScalesPerThread = kStepsPerThread / 16;

void drawSides(const Context &context, const PulseTrainSide *sides, int count,
               bool coincidencesAlone) {
  if (!context.onCpu()) {
    cudaDrawPulseTrains(context, sides, count);
    return;
  }
  const auto drawer = withIsa(context.cpu.isa, [](auto isa) { return &drawPulseTrains<isa>; });
  constexpr int64_t kTrainsPerThread = kStepsPerThread / 8;
  const int64_t lines = sides[0].values.cols + sides[1].values.cols;
  // Ranges are whole words, and whole blocks of random words if the mini-batch begins with one.
  const int64_t unit = 4 * sides[0].layout->samplesPerWord;
  parallelRange(
      context, sides[0].values.rows, unit * (1 + kTrainsPerThread / lines / unit),
      [&](int64_t begin, int64_t end) { drawer(sides, count, coincidencesAlone, begin, end); });
}

}  // namespace

void BitLineMaker::makeWords(const Context &context, MatrixView<const float> x,
                             MatrixView<const float> d, float lr, float granularity,
                             const UpdateParameters &parameters, RandomKey key,
                             uint64_t firstSample, uint64_t *slots) {
  makeWords(context, x, d, lr, granularity, parameters, key,
            SampleRange{firstSample, x.rows, nullptr}, slots);
}

void BitLineMaker::makeWords(const Context &context, MatrixView<const float> x,
                             MatrixView<const float> d, float lr, float granularity,
                             const UpdateParameters &parameters, RandomKey key,
                             const SampleRange &samples, uint64_t *slots) {
  PULSORA_CHECK(InputError, x.rows == d.rows, "x has ", x.rows, " samples and d has ", d.rows,
                "; an update needs one d for each x");
  begin(x, d, samples);
  if (x.rows == 0) {
    if (exposeRawInputs_) keepRawInputs(context, x, d);
    return;
  }
  // A GPU counts slots as it scales, so it takes its memory before.
  if (!context.onCpu()) reserve(context, x.rows, x.cols, d.cols, lr, granularity, parameters);
  scalePulseTrains(context, x, d, scaler(context, lr, granularity, parameters), slots);
  if (sendsRandomTrains(parameters.pulse_type)) {
    PulseTrainSide sides[3];
    const int count = trainSides(context, x, d, lr, parameters, key, sides);
    drawSides(context, sides, count, coincidencesAlone_);
  } else {
    if (exposeRawInputs_) keepRawInputs(context, x, d);
    fillLevels(context, x, d, lr < 0.0f, parameters);
  }
  if (!context.onCpu() || !slots) return;
  for (int64_t s = 0; s < x.rows; ++s) *slots += static_cast<uint64_t>(trainLength_.data()[s]);
}

void BitLineMaker::begin(MatrixView<const float> x, MatrixView<const float> d,
                         const SampleRange &samples) {
  words_ = PulseWords{};
  words_.samples = x.rows;
  words_.xSize = x.cols;
  words_.dSize = d.cols;
  words_.firstSample = samples.first;
  words_.endSample = samples.first + static_cast<uint64_t>(samples.room);
  words_.present = samples.present;
}

void BitLineMaker::reserve(const Context &context, int64_t samples, int64_t xSize, int64_t dSize,
                           float lr, float granularity, const UpdateParameters &parameters) {
  reserveScales(context, samples);
  if (sendsRandomTrains(parameters.pulse_type)) {
    const int longest =
        context.onCpu()
            ? static_cast<int>(pulsora::longestTrain(parameters, pulsora::abs(lr), granularity))
            : longestTrain(parameters);
    const PulseLayout layout = PulseLayout::of(longest);
    bits_.reserve(context, planesOf(layout, samples, xSize, dSize, parameters.pulse_type).total);
  } else {
    levels_.reserve(context, samples * (xSize + dSize));
  }
  if (exposeRawInputs_) reserveRawInputs(context, samples * xSize, samples * dSize);
}

// Storage for the results per sample.
void BitLineMaker::reserveScales(const Context &context, int64_t samples) {
  maxima_.reserve(context, 2 * samples);
  scales_.reserve(context, samples);
  trainLength_.reserve(context, samples);
  layout_.reserve(context, 1);
  if (!context.onCpu() && finished_.empty()) finished_ = Buffer<uint32_t>::zeros(context, 1);
}

// Reserves storage for the results per sample, and returns the functor that scales pulse trains.
PulseTrainScaler BitLineMaker::scaler(const Context &context, float lr, float granularity,
                                      const UpdateParameters &parameters) {
  const int64_t m = words_.samples;
  reserveScales(context, m);
  words_.layout = layout_.data();
  words_.trainLength = trainLength_.data();
  return {parameters,         pulsora::abs(lr), granularity,        maxima_.data(),
          maxima_.data() + m, scales_.data(),   trainLength_.data()};
}

void BitLineMaker::scalePulseTrains(const Context &context, MatrixView<const float> x,
                                    MatrixView<const float> d, const PulseTrainScaler &scaler,
                                    uint64_t *slots) {
  const int64_t m = x.rows;
  if (context.onCpu()) {
    rowAbsMax(context, x, maxima_.data());
    rowAbsMax(context, d, maxima_.data() + m);
    parallelRange(context, m, kScalesPerThread, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) scaler(i);
    });
    forEach(context, 1, LayoutChooser{trainLength_.data(), m, layout_.data()});
  } else {
    cudaScalePulseTrains(context, x, d, jobOf(context, scaler, slots));
  }
}

PulseTrainJob BitLineMaker::jobOf(const Context &context, const PulseTrainScaler &scaler,
                                  uint64_t *slots) {
  float *maxima = maxima_.data();
  return {
      {maxima, maxima + words_.samples, finished_.data(), context.nonfiniteFlag, words_.present},
      scaler,
      layout_.data(),
      slots};
}

PulseTrainJob BitLineMaker::startWords(const Context &context, MatrixView<const float> x,
                                       MatrixView<const float> d, float lr, float granularity,
                                       const UpdateParameters &parameters,
                                       const SampleRange &samples, uint64_t *slots) {
  begin(x, d, samples);
  return jobOf(context, scaler(context, lr, granularity, parameters), slots);
}

BitLineMaker::Planes BitLineMaker::planesOf(const PulseLayout &layout, int64_t samples,
                                            int64_t xSize, int64_t dSize, PulseType type) {
  const int64_t words = layout.words(samples);
  const int64_t x = words * xSize + kPulsePadding;
  const int64_t d = words * dSize + kPulsePadding;
  return {x, d, 2 * x + (type == PulseType::Stochastic ? 3 : 2) * d};
}

int BitLineMaker::trainSides(const Context &context, MatrixView<const float> x,
                             MatrixView<const float> d, float lr,
                             const UpdateParameters &parameters, RandomKey key,
                             PulseTrainSide *sides) {
  if (exposeRawInputs_) keepRawInputs(context, x, d);
  const bool ascend = lr < 0.0f;
  const bool twoPass = parameters.pulse_type == PulseType::Stochastic;
  // On the CPU the layout is known here; on a GPU storage is reserved for the longest pulse trains
  // that the parameters allow.
  const PulseLayout layout =
      context.onCpu() ? *layout_.data() : PulseLayout::of(longestTrain(parameters));
  const Planes planes = planesOf(layout, x.rows, x.cols, d.cols, parameters.pulse_type);
  bits_.reserve(context, planes.total);
  if (context.onCpu())
    detail::fillZero(context, bits_.data(), static_cast<size_t>(planes.total) * sizeof(uint32_t));
  uint32_t *xBits = bits_.data();
  uint32_t *xSigns = xBits + planes.x;
  uint32_t *dBits = xSigns + planes.x;
  uint32_t *dSigns = dBits + planes.d;
  const float step = resolutionStep(parameters.res);
  const bool rounding = parameters.sto_round && step > 0.0f;
  const uint64_t first = words_.firstSample;
  const PulseTrainScale *scales = scales_.data();
  const PulseLayout *place = layout_.data();
  sides[0] = {
      x,     scales, true, false, step,   rounding,      key, Purpose::XPulse, Purpose::XRound,
      first, place,  0,    xBits, xSigns, words_.present};
  sides[1] = {d,        scales, false,           ascend,          step,
              rounding, key,    Purpose::DPulse, Purpose::DRound, first,
              place,    0,      dBits,           dSigns,          words_.present};
  words_.kind = PulseKind::Words;
  words_.xBits = xBits;
  words_.xSigns = xSigns;
  words_.dBits = dBits;
  words_.dSigns = dSigns;
  if (twoPass) {
    sides[2] = sides[1];
    sides[2].bits = dSigns + planes.d;
    sides[2].signs = nullptr;
    sides[2].firstSlot = kSecondPassSlot;
    words_.kind = PulseKind::TwoPass;
    words_.dBitsNegativeX = sides[2].bits;
  }
  return twoPass ? 3 : 2;
}

void BitLineMaker::fillLevels(const Context &context, MatrixView<const float> x,
                              MatrixView<const float> d, bool ascend,
                              const UpdateParameters &parameters) {
  const int64_t m = x.rows;
  const bool counts = parameters.pulse_type == PulseType::MeanCount;
  const int64_t xLevels = m * x.cols;
  levels_.reserve(context, xLevels + m * d.cols);
  forEach(context, xLevels,
          LevelMaker{x, scales_.data(), maxima_.data(), true, false, counts,
                     resolutionStep(parameters.x_res_implicit), words_.present, levels_.data()});
  forEach(context, m * d.cols,
          LevelMaker{d, scales_.data(), maxima_.data() + m, false, ascend, counts,
                     resolutionStep(parameters.d_res_implicit), words_.present,
                     levels_.data() + xLevels});
  words_.kind = counts ? PulseKind::MeanCount : PulseKind::Implicit;
  words_.xLevels = levels_.data();
  words_.dLevels = levels_.data() + xLevels;
}

void BitLineMaker::reserveRawInputs(const Context &context, int64_t x, int64_t d) {
  rawX_.reserve(context, x);
  rawD_.reserve(context, d);
}

void BitLineMaker::keepRawInputs(const Context &context, MatrixView<const float> x,
                                 MatrixView<const float> d) {
  reserveRawInputs(context, x.size(), d.size());
  rawRows_ = x.rows;
  rawXSize_ = x.cols;
  rawDSize_ = d.cols;
  copy(context, x, rowMajor(rawX_.data(), x.rows, x.cols));
  copy(context, d, rowMajor(rawD_.data(), d.rows, d.cols));
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
  const auto m = static_cast<size_t>(words_.samples);
  std::vector<PulseTrainScale> scales(m);
  std::vector<float> maxima(2 * m);
  detail::copyToHost(context, scales.data(), scales_.data(), m * sizeof(PulseTrainScale));
  detail::copyToHost(context, maxima.data(), maxima_.data(), 2 * m * sizeof(float));
  for (size_t s = 0; s < m; ++s) {
    stats.slots += static_cast<uint64_t>(scales[s].length);
    stats.longest = std::max(stats.longest, scales[s].length);
    stats.clippedSamples += trainsClip(scales[s], maxima[s], maxima[m + s]);
  }
  return stats;
}

}  // namespace pulsora
