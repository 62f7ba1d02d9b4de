#include "pulses/bit_line_maker.h"

#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "util/matrix_test_util.h"
#include "util/pulse_test_util.h"

namespace pulsora::testing {
namespace {

constexpr RandomKey kKey = {0xC0FFEEU, 0xBEEFU};

// One slot's decision, written once more: the upper 31 bits of the word against floor(p 2^31).
bool firesPlainly(RandomKey key, Purpose purpose, int64_t line, uint64_t sample, uint32_t slot,
                  float p) {
  const Philox4 block = philox4x32_10(
      {{static_cast<uint32_t>(line), static_cast<uint32_t>(sample / 4),
        static_cast<uint32_t>(purpose) << 24 | slot, static_cast<uint32_t>(sample / 4 >> 32)}},
      key);
  return static_cast<double>(block.v[sample % 4] >> 1) <
         std::floor(static_cast<double>(p) * 0x1p31);
}

// The trains that the contract defines, line by line and slot by slot.
Trains plainTrains(const Batch &b, float lr, float g, const UpdateParameters &p,
                   uint64_t firstSample) {
  Trains trains;
  const bool twoPass = p.pulse_type == PulseType::Stochastic;
  for (int64_t s = 0; s < b.samples; ++s) {
    const auto largest = [&](MatrixView<const float> v) {
      float most = 0.0f;
      for (int64_t j = 0; j < v.cols; ++j) most = std::max(most, std::fabs(v(s, j)));
      return most;
    };
    const PulseTrainScale t =
        trainScale(p, std::fabs(lr), g, largest(b.xView()), largest(b.dView()));
    const auto side = [&](MatrixView<const float> v, float scale, Purpose purpose,
                          uint32_t firstSlot, bool flip, std::vector<int8_t> &out) {
      for (int64_t j = 0; j < v.cols; ++j) {
        const float probability = std::min(scale * std::fabs(v(s, j)), 1.0f);
        const bool negative = (v(s, j) < 0.0f) != flip;
        for (int slot = 0; slot < t.length; ++slot) {
          const bool fires = firesPlainly(kKey, purpose, j, firstSample + static_cast<uint64_t>(s),
                                          firstSlot + static_cast<uint32_t>(slot), probability);
          out.push_back(fires ? static_cast<int8_t>(negative ? -1 : 1) : int8_t{0});
        }
      }
    };
    side(b.xView(), t.xScale, Purpose::XPulse, 0, false, trains.x);
    side(b.dView(), t.dScale, Purpose::DPulse, 0, lr < 0.0f, trains.d);
    if (twoPass) side(b.dView(), t.dScale, Purpose::DPulse, 1u << 20, lr < 0.0f, trains.dNegativeX);
  }
  return trains;
}

class WordsOfLength : public ::testing::TestWithParam<int> {};

TEST_P(WordsOfLength, EqualThePlainDerivationOnEveryIsaAndThreadCount) {
  const Batch b = randomBatch(11, 70, 5, 42);
  constexpr float kLr = 0.5f;
  constexpr float kGranularity = 0.001f;
  constexpr uint64_t kFirst = 6;
  for (const PulseType type : {PulseType::StochasticCompressed, PulseType::Stochastic}) {
    for (const bool ublm : {false, true}) {
      UpdateParameters p = parametersFor(GetParam(), true, ublm);
      p.pulse_type = type;
      const Trains expected = plainTrains(b, kLr, kGranularity, p, kFirst);
      for (const Isa isa : supportedIsas()) {
        for (const int threads : {1, 2}) {
          BitLineMaker maker;
          maker.makeWords(onCpu(threads, isa), b.xView(), b.dView(), kLr, kGranularity, p, kKey,
                          kFirst);
          EXPECT_TRUE(trainsOf(maker.words()) == expected)
              << isaName(isa) << ", " << threads << " threads";
        }
      }
    }
  }
}

TEST_P(WordsOfLength, AreLaidOutAsDocumented) {
  const int bl = GetParam();
  const Batch b = repeatedBatch(5, {1.0f, -1.0f, 0.0f}, {1.0f, -1.0f});
  BitLineMaker maker;
  // Probability 1: every slot of a line fires, but those of the zero.
  maker.makeWords(Context{}, b.xView(), b.dView(), static_cast<float>(bl), 1.0f,
                  parametersFor(bl, false, false), kKey, 3);
  const PulseWords &p = maker.words();
  EXPECT_EQ(p.layout->slots, bl);
  EXPECT_EQ(p.layout->samplesPerWord, bl <= 16 ? 32 / bl : 1);
  EXPECT_EQ(p.layout->wordsPerSample, (bl + 31) / 32);
  int64_t xBits = 0;
  int64_t xSigns = 0;
  for (int64_t at = 0; at < p.layout->words(5) * 3; ++at) {
    xBits += static_cast<int64_t>(popcount(p.xBits[at]));
    xSigns += at % 3 == 1 ? static_cast<int64_t>(popcount(p.xSigns[at])) : 0;
    EXPECT_TRUE(at % 3 != 0 || p.xSigns[at] == 0);
  }
  EXPECT_EQ(xBits, 2 * 5 * bl);  // and none behind the last slot
  EXPECT_GE(xSigns, 5 * bl);
  for (int64_t s = 0; s < 5; ++s) {
    EXPECT_EQ(p.trainLength[s], bl);
    EXPECT_EQ(signedCount(p, s, 0, 0), -bl);
    EXPECT_EQ(signedCount(p, s, 0, 1), bl);
    EXPECT_EQ(signedCount(p, s, 1, 1), -bl);
    EXPECT_EQ(signedCount(p, s, 0, 2), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(BitLineMaker, WordsOfLength,
                         ::testing::Values(1, 2, 3, 4, 5, 8, 10, 11, 16, 17, 31, 32, 33, 40, 64, 65,
                                           100));

TEST(BitLineMaker, AcceptsEveryLengthUpToAHundred) {
  const Batch b = randomBatch(3, 4, 2, 5);
  for (int bl = 1; bl <= 100; ++bl) {
    const UpdateParameters p = parametersFor(bl, true, false);
    BitLineMaker maker;
    maker.makeWords(Context{}, b.xView(), b.dView(), 0.05f, 0.001f, p, kKey, 9);
    EXPECT_TRUE(trainsOf(maker.words()) == plainTrains(b, 0.05f, 0.001f, p, 9)) << bl;
  }
}

Trains trainsFor(const Batch &b, const UpdateParameters &p, float lr, uint64_t first = 0) {
  BitLineMaker maker;
  maker.makeWords(Context{}, b.xView(), b.dView(), lr, 0.001f, p, kKey, first);
  return trainsOf(maker.words());
}

TEST(BitLineMaker, BitsDoNotDependOnTheLongestTrainOfTheBatch) {
  const UpdateParameters p = parametersFor(100, true, true);
  Batch b = repeatedBatch(2, {0.3f, -0.1f, 0.2f}, {0.2f, -0.05f});
  const Trains alone = trainsFor(b, p, 0.05f);    // 3 slots
  for (const float size : {0.02f, 0.3f, 2.0f}) {  // up to 4, 18 and 100 slots
    Batch mixed = b;
    const Batch large = repeatedBatch(1, {3.0f * size, 0.0f, 0.0f}, {2.0f, 0.0f});
    mixed.x.insert(mixed.x.end(), large.x.begin(), large.x.end());
    mixed.d.insert(mixed.d.end(), large.d.begin(), large.d.end());
    ++mixed.samples;
    Trains together = trainsFor(mixed, p, 0.05f);
    ASSERT_GT(together.x.size(), alone.x.size());
    together.x.resize(alone.x.size());
    together.d.resize(alone.d.size());
    EXPECT_TRUE(together == alone) << size;
  }
}

TEST(BitLineMaker, Property37_SplitOfABatchGivesTheSameBits) {
  const Batch b = randomBatch(23, 9, 6, 3);
  for (const PulseType type : {PulseType::StochasticCompressed, PulseType::Stochastic}) {
    UpdateParameters p = parametersFor(31, true, true);
    p.pulse_type = type;
    p.res = 0.02f;
    p.sto_round = true;
    const Trains whole = trainsFor(b, p, 0.2f, 5);
    for (int64_t cut = 1; cut < 23; cut += 3) {
      BitLineMaker maker;
      maker.makeWords(Context{}, b.xRows(0, cut), b.dRows(0, cut), 0.2f, 0.001f, p, kKey, 5);
      Trains parts = trainsOf(maker.words());
      maker.makeWords(Context{}, b.xRows(cut, 23), b.dRows(cut, 23), 0.2f, 0.001f, p, kKey,
                      5 + static_cast<uint64_t>(cut));
      parts.append(trainsOf(maker.words()));
      EXPECT_TRUE(parts == whole) << cut;
    }
  }
}

TEST(BitLineMaker, SampleNumbersBeyond32BitsGiveOtherBits) {
  const Batch b = repeatedBatch(4, {0.5f, -0.4f}, {0.7f, 0.3f});
  const UpdateParameters p = parametersFor(31, true, false);
  const uint64_t late = (uint64_t{1} << 34) + 2;
  const Trains trains = trainsFor(b, p, 0.02f, late);
  EXPECT_TRUE(trains == plainTrains(b, 0.02f, 0.001f, p, late));
  EXPECT_FALSE(trains == trainsFor(b, p, 0.02f, 2));
}

TEST(BitLineMaker, ReadsViewsOfAnyLayout) {
  const Batch b = randomBatch(13, 67, 6, 8);
  for (const PulseType type : {PulseType::StochasticCompressed, PulseType::Stochastic,
                               PulseType::MeanCount, PulseType::DeterministicImplicit}) {
    UpdateParameters p = parametersFor(20, true, true);
    p.pulse_type = type;
    BitLineMaker plain;
    plain.makeWords(Context{}, b.xView(), b.dView(), 0.1f, 0.001f, p, kKey, 1);
    for (const Layout xLayout : kLayouts) {
      for (const Layout dLayout : kLayouts) {
        const LaidOut<float> x(b.xView(), xLayout);
        const LaidOut<float> d(b.dView(), dLayout);
        BitLineMaker maker;
        maker.setExposeRawInputs(true);
        maker.makeWords(Context{}, x.view(), d.view(), 0.1f, 0.001f, p, kKey, 1);
        if (type == PulseType::StochasticCompressed || type == PulseType::Stochastic) {
          EXPECT_TRUE(trainsOf(maker.words()) == trainsOf(plain.words()));
        } else {
          for (int64_t i = 0; i < 13 * 67; ++i)
            EXPECT_EQ(maker.words().xLevels[i], plain.words().xLevels[i]);
          for (int64_t i = 0; i < 13 * 6; ++i)
            EXPECT_EQ(maker.words().dLevels[i], plain.words().dLevels[i]);
        }
        const MatrixView<const float> rawX = maker.getXData();
        const MatrixView<const float> rawD = maker.getDData();
        ASSERT_TRUE(rawX.isContiguous() && rawX.rows == 13 && rawX.cols == 67);
        ASSERT_TRUE(rawD.isContiguous() && rawD.rows == 13 && rawD.cols == 6);
        EXPECT_EQ(std::vector<float>(rawX.data, rawX.data + rawX.size()), b.x);
        EXPECT_EQ(std::vector<float>(rawD.data, rawD.data + rawD.size()), b.d);
      }
    }
  }
}

TEST(BitLineMaker, RawInputsAreKeptOnlyOnRequestAndFollowTheLastBatch) {
  BitLineMaker maker;
  const Batch large = randomBatch(5, 4, 3, 1);
  const Batch small = randomBatch(2, 4, 3, 2);
  const UpdateParameters p;
  maker.makeWords(Context{}, large.xView(), large.dView(), 0.1f, 0.001f, p, kKey, 0);
  EXPECT_EQ(maker.getXData().size(), 0);
  maker.setExposeRawInputs(true);
  maker.makeWords(Context{}, large.xView(), large.dView(), 0.1f, 0.001f, p, kKey, 0);
  maker.makeWords(Context{}, small.xView(), small.dView(), 0.1f, 0.001f, p, kKey, 0);
  EXPECT_EQ(maker.getXData().rows, 2);
  EXPECT_EQ(maker.getDData()(1, 2), small.d[5]);
  maker.setExposeRawInputs(false);
  maker.makeWords(Context{}, large.xView(), large.dView(), 0.1f, 0.001f, p, kKey, 0);
  EXPECT_EQ(maker.getXData().size(), 0);
  EXPECT_EQ(maker.getDData().size(), 0);
}

TEST(BitLineMaker, Property07_NothingIsSentForZerosOrALearningRateOfZero) {
  const Batch zeroX = repeatedBatch(9, {0.0f, -0.0f}, {1.0f, -1.0f});
  const Batch zeroD = repeatedBatch(9, {1.0f, -1.0f}, {0.0f, -0.0f});
  const Batch tiny = repeatedBatch(9, {1e-40f, -1e-45f}, {1.0f, 1.0f});  // subnormal, counts as 0
  const Batch some = repeatedBatch(9, {0.5f, -0.5f}, {0.5f, 1.0f});
  for (int flags = 0; flags < 8; ++flags) {
    const UpdateParameters p =
        parametersFor(31, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0);
    for (const auto &[batch, lr] :
         {std::pair{&zeroX, 0.1f}, {&zeroD, 0.1f}, {&tiny, 0.1f}, {&some, 0.0f}}) {
      BitLineMaker maker;
      maker.makeWords(Context{}, batch->xView(), batch->dView(), lr, 0.001f, p, kKey, 0);
      const PulseWords &words = maker.words();
      for (int64_t s = 0; s < 9; ++s) EXPECT_EQ(words.trainLength[s], 0);
      for (int64_t at = 0; at < words.layout->words(9) * 2; ++at)
        EXPECT_EQ(words.xBits[at] | words.dBits[at], 0u);
      EXPECT_EQ(maker.stats(Context{}).slots, 0u);
    }
  }
}

TEST(BitLineMaker, Property08_ANegativeLearningRateFlipsTheSignsOfDAlone) {
  const Batch b = randomBatch(7, 5, 4, 12);
  Batch flipped = b;
  for (float &value : flipped.d) value = -value;
  for (const PulseType type : {PulseType::StochasticCompressed, PulseType::Stochastic}) {
    UpdateParameters p = parametersFor(31, true, true);
    p.pulse_type = type;
    EXPECT_TRUE(trainsFor(b, p, -0.1f) == trainsFor(flipped, p, 0.1f));
    EXPECT_FALSE(trainsFor(b, p, -0.1f) == trainsFor(b, p, 0.1f));
  }
}

TEST(BitLineMaker, HugeAndSmallValuesKeepTheirShareOfTheTrain) {
  for (const float size : {1e-12f, 1.0f, 1e15f, 3e38f}) {
    const Batch b = repeatedBatch(400, {size, -size, 0.5f * size, 0.0f}, {1.0f, 0.25f});
    BitLineMaker maker;
    maker.makeWords(Context{}, b.xView(), b.dView(), 1e-3f / size * 16.0f, 1e-3f,
                    parametersFor(31, true, true), kKey, 0);
    int full = 0;
    int half = 0;
    for (int64_t s = 0; s < 400; ++s) {
      full += signedCount(maker.words(), s, 0, 0);
      half += signedCount(maker.words(), s, 0, 2);
      EXPECT_EQ(signedCount(maker.words(), s, 0, 3), 0);
    }
    if (16.0f / size * 1e-3f < 1e-37f) continue;  // a subnormal learning rate has no such precision
    // k = 16: 16 slots of probability 1. N = 400 samples, 5 sigma of 6400 Bernoulli(1/2) slots.
    EXPECT_NEAR(full, -6400, 6) << size;
    EXPECT_NEAR(half, -3200, 200) << size;
  }
}

TEST(BitLineMaker, AResolutionAboveOneIsANumberOfSteps) {
  const Batch b = randomBatch(20, 6, 5, 31);
  for (const bool stochastic : {false, true}) {
    UpdateParameters steps = parametersFor(31, true, true);
    steps.res = 10.0f;
    steps.sto_round = stochastic;
    UpdateParameters size = steps;
    size.res = 0.1f;
    const Trains trains = trainsFor(b, steps, 0.05f);
    EXPECT_TRUE(trains == trainsFor(b, size, 0.05f));
    int64_t fired = 0;
    for (const int8_t t : trains.x) fired += t != 0;
    EXPECT_GT(fired, 0);
  }
  UpdateParameters implicit = parametersFor(31, true, true);
  implicit.pulse_type = PulseType::DeterministicImplicit;
  implicit.x_res_implicit = implicit.d_res_implicit = 10.0f;
  BitLineMaker maker;
  maker.makeWords(Context{}, b.xView(), b.dView(), 0.05f, 0.001f, implicit, kKey, 0);
  float largest = 0.0f;
  for (int64_t i = 0; i < 20 * 6; ++i)
    largest = std::max(largest, std::fabs(maker.words().xLevels[i]));
  EXPECT_GT(largest, 0.5f);
}

TEST(BitLineMaker, ReportsWhatItSent) {
  Batch b = repeatedBatch(2, {0.9f, 0.1f}, {0.8f});
  b.x[2] = 9.0f;  // the second sample asks for 72 slots
  BitLineMaker maker;
  maker.makeWords(Context{}, b.xView(), b.dView(), 0.01f, 0.001f, parametersFor(31, true, true),
                  kKey, 0);
  const PulseStats stats = maker.stats(Context{});
  EXPECT_EQ(stats.samples, 2u);
  EXPECT_EQ(stats.slots, 8u + 31u);
  EXPECT_EQ(stats.longest, 31);
  EXPECT_EQ(stats.clippedSamples, 1u);
}

TEST(BitLineMaker, RefusesUnequalBatchesAndAcceptsEmptyOnes) {
  const Batch b = randomBatch(3, 2, 2, 1);
  BitLineMaker maker;
  EXPECT_THROW(maker.makeWords(Context{}, b.xRows(0, 2), b.dView(), 0.1f, 0.001f, {}, kKey, 0),
               InputError);
  maker.makeWords(Context{}, b.xRows(0, 0), b.dRows(0, 0), 0.1f, 0.001f, {}, kKey, 0);
  EXPECT_EQ(maker.words().samples, 0);
  EXPECT_EQ(maker.stats(Context{}).slots, 0u);
}

TEST(BitLineMaker, FindsTheStorageOfAnEarlierBatchClean) {
  const Batch large = randomBatch(40, 90, 30, 4);
  const Batch small = randomBatch(6, 7, 3, 5);
  UpdateParameters p = parametersFor(31, true, true);
  BitLineMaker used;
  used.makeWords(Context{}, large.xView(), large.dView(), 0.5f, 0.001f, p, kKey, 0);
  used.makeWords(Context{}, small.xView(), small.dView(), 0.1f, 0.001f, p, kKey, 2);
  EXPECT_TRUE(trainsOf(used.words()) == trainsFor(small, p, 0.1f, 2));
}

}  // namespace
}  // namespace pulsora::testing
