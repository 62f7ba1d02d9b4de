#include "array/pulsed_weight_updater.h"

#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "devices/constant_step.h"
#include "devices/pulse_rule.h"
#include "util/pulse_test_util.h"

namespace pulsora::testing {
namespace {

TEST(PulsedWeightUpdater, Property06_WeightsMoveInWholeStepsOfAtMostOneTrain) {
  const Batch b = randomBatch(50, 7, 5, 33);
  for (const PulseType type : {PulseType::StochasticCompressed, PulseType::Stochastic,
                               PulseType::MeanCount, PulseType::DeterministicImplicit}) {
    PulsedWeightUpdater updater(typed(type, 40), kPulseTrainKey);
    for (int64_t s = 0; s < b.samples; ++s) {
      PulsedDevice device(Context{}, idealDevice(1e-3), 5, 7, kDeviceKey);
      updater.update(Context{}, device, b.xRows(s, s + 1), b.dRows(s, s + 1), 0.1f,
                     static_cast<uint64_t>(s));
      const int length = updater.bitLineMaker().words().trainLength[0];
      for (const float w : storedWeights(device)) {
        const double steps = static_cast<double>(w) / static_cast<double>(1e-3f);
        EXPECT_NEAR(steps, std::nearbyint(steps), 3e-7 * std::fabs(steps));  // 2 ulp
        EXPECT_LE(std::fabs(std::nearbyint(steps)), length);
      }
    }
  }
}

DeviceParams noisyDevice() {
  return makeParams("ConstantStep", {{"dw_min", Value(0.01)},
                                     {"w_max", Value(0.1)},
                                     {"w_min", Value(-0.1)},
                                     {"up_down", Value(0.1)},
                                     {"up_down_dtod", Value(0.05)},
                                     {"corrupt_devices_prob", Value(0.1)},
                                     {"corrupt_devices_range", Value(0.05)}});
}

TEST(PulsedWeightUpdater, Property07_NothingToSendLeavesTheWeightsAndTheLedger) {
  const Batch zeroX = repeatedBatch(5, {0.0f, 0.0f}, {1.0f, -2.0f});
  const Batch zeroD = repeatedBatch(5, {1.0f, -2.0f}, {0.0f, 0.0f});
  const Batch some = repeatedBatch(5, {1.0f, -2.0f}, {1.0f, -2.0f});
  for (const PulseType type : kPulseTypes) {
    PulsedDevice device(Context{}, noisyDevice(), 2, 2, kDeviceKey);
    fillWeights(device, [](int64_t i) { return 0.01f * static_cast<float>(i) - 0.015f; });
    const std::vector<float> before = storedWeights(device);
    PulsedWeightUpdater updater(typed(type), kPulseTrainKey);
    updater.update(Context{}, device, zeroX.xView(), zeroX.dView(), 0.1f, 0);
    updater.update(Context{}, device, zeroD.xView(), zeroD.dView(), 0.1f, 5);
    updater.update(Context{}, device, some.xView(), some.dView(), 0.0f, 10);
    updater.update(Context{}, device, some.xRows(0, 0), some.dRows(0, 0), 0.1f, 15);
    EXPECT_EQ(storedWeights(device), before);
    EXPECT_EQ(device.pulseCount(Context{}), 0u);
  }
}

std::vector<float> updatedWeights(const Context &context, const UpdateParameters &p, const Batch &b,
                                  float lr, const DeviceParams &params, uint64_t first = 3) {
  PulsedDevice device(context, params, b.dSize, b.xSize, kDeviceKey);
  PulsedWeightUpdater updater(p, kPulseTrainKey);
  updater.update(context, device, b.xView(), b.dView(), lr, first);
  return storedWeights(device);
}

TEST(PulsedWeightUpdater, Property08_ANegativeLearningRateIsANegatedD) {
  const Batch b = randomBatch(30, 10, 8, 3);
  Batch negated = b;
  for (float &value : negated.d) value = -value;
  for (const PulseType type : kPulseTypes) {
    EXPECT_EQ(updatedWeights(Context{}, typed(type), b, -0.05f, noisyDevice()),
              updatedWeights(Context{}, typed(type), negated, 0.05f, noisyDevice()));
  }
}

TEST(PulsedWeightUpdater, Property09_ABatchIsTheSumOfItsSamples) {
  const Batch b = randomBatch(40, 9, 6, 5);
  for (const PulseType type : kPulseTypes) {
    const bool exact = !isDigital(type);
    const std::vector<float> whole =
        updatedWeights(Context{}, typed(type), b, 0.05f, idealDevice(double(kDw)), 0);
    std::vector<double> sum(whole.size());
    for (int64_t s = 0; s < b.samples; ++s) {
      PulsedDevice device(Context{}, idealDevice(double(kDw)), 6, 9, kDeviceKey);
      PulsedWeightUpdater updater(typed(type), kPulseTrainKey);
      updater.update(Context{}, device, b.xRows(s, s + 1), b.dRows(s, s + 1), 0.05f,
                     static_cast<uint64_t>(s));
      const std::vector<float> one = storedWeights(device);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(one[i]);
    }
    for (size_t i = 0; i < sum.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(whole[i]), sum[i], exact ? 0.0 : 1e-6);
    }
  }
}

TEST(PulsedWeightUpdater, Property10_DeterministicPulsesStayWithinOneStepOfTheProduct) {
  const Batch b = randomBatch(100, 9, 6, 13);
  constexpr float kRate = 0.03f;  // k <= 31: nothing saturates
  for (const PulseType type : {PulseType::DeterministicImplicit, PulseType::MeanCount}) {
    // MeanCount rounds the counts of both lines first: by half a pulse each, weighted with the
    // other's probability.
    const double limit = type == PulseType::MeanCount ? 1.75 : 0.5001;
    PulsedWeightUpdater updater(typed(type), kPulseTrainKey);
    for (int64_t s = 0; s < b.samples; ++s) {
      PulsedDevice device(Context{}, idealDevice(1e-3), 6, 9, kDeviceKey);
      updater.update(Context{}, device, b.xRows(s, s + 1), b.dRows(s, s + 1), kRate,
                     static_cast<uint64_t>(s));
      for (int64_t i = 0; i < 6; ++i) {
        for (int64_t j = 0; j < 9; ++j) {
          const double product = double(kRate) * double(b.xView()(s, j)) * double(b.dView()(s, i));
          EXPECT_LE(std::fabs(double(device.weights()(i, j)) + product), limit * 1e-3);
        }
      }
    }
  }
}

// N = 300 samples per length; a standard deviation is known to 5 / sqrt(2 N) = 20 %, the slope over
// three decades to 0.03.
TEST(PulsedWeightUpdater, Property11_NoiseFallsWithTheRootOfTheTrainLength) {
  constexpr int64_t kN = 300;
  const Batch b = repeatedBatch(kN, {1.0f, 0.5f}, {1.0f, 0.5f});  // cell (1, 1): rho = 1/4
  std::vector<double> logLength, logSd;
  for (const int length : {10, 100, 1000, 10000}) {
    BitLineMaker maker;
    maker.makeWords(Context{}, b.xView(), b.dView(), 0.1f,
                    0.1f / static_cast<float>(length) * 1.00001f,
                    typed(PulseType::StochasticCompressed, 20000), kPulseTrainKey, 0);
    ASSERT_EQ(maker.words().trainLength[0], length);
    double sum = 0.0;
    double squares = 0.0;
    for (int64_t s = 0; s < kN; ++s) {
      const double change =
          signedCount(maker.words(), s, 1, 1) / double(length);  // in units of dW_max
      sum += change;
      squares += change * change;
    }
    const double sd = std::sqrt(squares / kN - sum / kN * sum / kN);
    const double expected = std::sqrt(0.25 * 0.75 / length);
    EXPECT_NEAR(sd / expected, 1.0, 5.0 / std::sqrt(2.0 * kN));
    logLength.push_back(std::log(length));
    logSd.push_back(std::log(sd));
  }
  double cross = 0.0;
  double square = 0.0;
  const double meanLength = (logLength[0] + logLength[1] + logLength[2] + logLength[3]) / 4;
  for (size_t i = 0; i < 4; ++i) {
    cross += (logLength[i] - meanLength) * logSd[i];
    square += (logLength[i] - meanLength) * (logLength[i] - meanLength);
  }
  EXPECT_NEAR(cross / square, -0.5, 0.03);
}

TEST(PulsedWeightUpdater, Property40_TheLedgerCountsEveryCoincidence) {
  const Batch b = randomBatch(60, 21, 17, 7);
  for (const PulseType type : {PulseType::StochasticCompressed, PulseType::Stochastic,
                               PulseType::MeanCount, PulseType::DeterministicImplicit}) {
    for (const int bl : {1, 4, 31, 40}) {
      PulsedDevice device(Context{}, noisyDevice(), 17, 21,
                          kDeviceKey);  // bounds and stuck cells do not hide pulses
      PulsedWeightUpdater updater(typed(type, bl), kPulseTrainKey);
      updater.update(onCpu(2), device, b.xView(), b.dView(), 0.5f, 0);
      uint64_t counted = 0;
      double moved = 0.0;
      for (int64_t s = 0; s < b.samples; ++s) {
        for (int64_t i = 0; i < 17; ++i) {
          for (int64_t j = 0; j < 21; ++j) {
            counted += static_cast<uint64_t>(
                std::abs(signedCount(updater.bitLineMaker().words(), s, i, j)));
          }
        }
      }
      EXPECT_EQ(device.pulseCount(Context{}), counted);
      PulsedDevice ideal(Context{}, idealDevice(double(kDw)), 17, 21, kDeviceKey);
      for (int64_t s = 0; s < b.samples; ++s) {
        const std::vector<float> before = storedWeights(ideal);
        updater.update(Context{}, ideal, b.xRows(s, s + 1), b.dRows(s, s + 1), 0.5f,
                       static_cast<uint64_t>(s));
        const std::vector<float> after = storedWeights(ideal);
        for (size_t c = 0; c < after.size(); ++c)
          moved += std::fabs(double(after[c]) - double(before[c])) / double(kDw);
      }
      EXPECT_EQ(static_cast<double>(ideal.pulseCount(Context{})), moved);
    }
  }
}

// --- the kernels against the rule, on arrays of awkward shapes ---

struct Shape {
  int64_t rows, cols;
};
class UpdateOfShape : public ::testing::TestWithParam<Shape> {};

TEST_P(UpdateOfShape, Property36_FollowsThePulseRuleCellByCell) {
  const auto [rows, cols] = GetParam();
  const int64_t samples = rows * cols > 10000 ? 5 : 11;
  const Batch b = randomBatch(samples, cols, rows, 17);
  const DeviceParams params = noisyDevice();
  const auto &p = params.as<ConstantStep::Params>();
  for (const PulseType type :
       {PulseType::StochasticCompressed, PulseType::Stochastic, PulseType::DeterministicImplicit}) {
    for (const int bl : {1, 3, 31, 40}) {
      PulsedDevice device(Context{}, params, rows, cols, kDeviceKey);
      const std::vector<std::vector<float>> cells = storedCells(device);
      std::vector<float> expected = storedWeights(device);
      PulsedWeightUpdater updater(typed(type, bl), kPulseTrainKey);
      const Context context = onCpu(2);
      updater.update(context, device, b.xView(), b.dView(), 1.0f, 3);
      const PulseWords &words = updater.bitLineMaker().words();
      for (int64_t cell = 0; cell < rows * cols; ++cell) {
        const auto at = static_cast<size_t>(cell);
        const ConstantStep::Response r =
            ConstantStep::response({cells[0][at], cells[1][at], cells[2][at], cells[3][at]}, p);
        for (int64_t s = 0; s < samples; ++s) {
          const int n = signedCount(words, s, cell / cols, cell % cols);
          const uint64_t sample = 3 + static_cast<uint64_t>(s);
          const float z =
              normalOfSample(kDeviceKey, Purpose::CycleNoise, static_cast<uint64_t>(cell), sample);
          expected[at] =
              pulsora::applyPulses<ConstantStep>(expected[at], std::abs(n), n > 0, r, p, z,
                                                 kDeviceKey, static_cast<uint64_t>(cell), sample);
        }
      }
      EXPECT_EQ(storedWeights(device), expected)
          << "pulse type " << static_cast<int>(type) << ", " << bl << " slots";
    }
  }
}

TEST_P(UpdateOfShape, Property37_IsTheSameOnEveryIsaAndThreadCountAndForEverySplit) {
  const auto [rows, cols] = GetParam();
  const Batch b = randomBatch(9, cols, rows, 29);
  for (const PulseType type : kPulseTypes) {
    const UpdateParameters p = typed(type);
    const std::vector<float> expected = updatedWeights(onCpu(1), p, b, 0.5f, noisyDevice());
    for (const Isa isa : supportedIsas()) {
      EXPECT_EQ(updatedWeights(onCpu(1, isa), p, b, 0.5f, noisyDevice()), expected) << isaName(isa);
    }
    for (const int threads : {2, 3})
      EXPECT_EQ(updatedWeights(onCpu(threads), p, b, 0.5f, noisyDevice()), expected);
    PulsedDevice device(Context{}, noisyDevice(), rows, cols, kDeviceKey);
    PulsedWeightUpdater updater(p, kPulseTrainKey);
    for (const auto &[begin, end] : {std::pair<int64_t, int64_t>{0, 2}, {2, 7}, {7, 7}, {7, 9}}) {
      updater.update(Context{}, device, b.xRows(begin, end), b.dRows(begin, end), 0.5f,
                     3 + static_cast<uint64_t>(begin), Bounds::Later);
    }
    device.meetBounds(Context{});
    EXPECT_EQ(storedWeights(device), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(PulsedWeightUpdater, UpdateOfShape,
                         ::testing::Values(Shape{1, 1}, Shape{1, 130}, Shape{130, 1}, Shape{3, 5},
                                           Shape{65, 63}, Shape{5, 63}, Shape{5, 64}, Shape{5, 65},
                                           Shape{33, 2}, Shape{257, 129}));

TEST(PulsedWeightUpdater, Property31_StuckCellsStayAndOthersKeepTheirBounds) {
  const Batch b = randomBatch(200, 20, 30, 37);
  PulsedDevice device(Context{}, noisyDevice(), 30, 20, kDeviceKey);
  const std::vector<float> start = storedWeights(device);
  PulsedWeightUpdater updater(typed(PulseType::StochasticCompressed), kPulseTrainKey);
  updater.update(Context{}, device, b.xView(), b.dView(), 1.0f, 0);
  const std::vector<float> w = storedWeights(device);
  const CellDescription cells = describe(device);
  int stuck = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    EXPECT_TRUE(w[i] >= cells.wMin[i] && w[i] <= cells.wMax[i]);
    if (cells.wMin[i] != cells.wMax[i]) continue;
    ++stuck;
    EXPECT_EQ(w[i], start[i]);
  }
  EXPECT_NEAR(stuck, 60, 5 * std::sqrt(600 * 0.1 * 0.9));
  EXPECT_GT(device.saturatedCells(Context{}), stuck);
}

TEST(PulsedWeightUpdater, OuterProductsAreExactAndObeyBoundsOnlyWithTheDevice) {
  const Batch b = randomBatch(30, 12, 10, 41);
  const std::vector<float> free =
      updatedWeights(Context{}, typed(PulseType::None), b, 2.0f, noisyDevice());
  const std::vector<float> bounded =
      updatedWeights(Context{}, typed(PulseType::NoneWithDevice), b, 2.0f, noisyDevice());
  PulsedDevice device(Context{}, noisyDevice(), 10, 12, kDeviceKey);
  const std::vector<float> start = storedWeights(device);
  const CellDescription cells = describe(device);
  int outside = 0;
  for (size_t cell = 0; cell < free.size(); ++cell) {
    double expected = static_cast<double>(start[cell]);
    double size = std::fabs(expected);
    for (int64_t s = 0; s < 30; ++s) {
      const double product =
          2.0 * double(b.xView()(s, int64_t(cell) % 12)) * double(b.dView()(s, int64_t(cell) / 12));
      expected -= product;
      size += std::fabs(product);
    }
    EXPECT_NEAR(static_cast<double>(free[cell]), expected, 4e-6 * size);
    EXPECT_EQ(bounded[cell], std::min(std::max(free[cell], cells.wMin[cell]), cells.wMax[cell]));
    outside += free[cell] != bounded[cell];
  }
  EXPECT_GT(outside, 30);
}

TEST(PulsedWeightUpdater, ExplainsCoarseDevicesAndHealthyUpdates) {
  const Batch b = repeatedBatch(4, kX, kD);
  const UpdateParameters p = typed(PulseType::StochasticCompressed);
  const Value::Map good = explainPulses(Context{}, p, kDw, b.xView(), b.dView(), kLr);
  EXPECT_TRUE(good.at("warnings").list()->empty());
  EXPECT_EQ(*good.at("mean_bl").real(), 8.0);
  EXPECT_EQ(*good.at("longest_bl").integer(), 8);
  EXPECT_NEAR(*good.at("mean_pulses_of_largest").real(), 7.3728, 1e-4);
  EXPECT_NEAR(*good.at("largest_x_probability").real(), std::sqrt(7.3728 / 8), 1e-5);
  const Value::Map coarse = explainPulses(Context{}, p, 0.5f, b.xView(), b.dView(), kLr);
  ASSERT_EQ(coarse.at("warnings").list()->size(), 1u);
  EXPECT_NE(coarse.at("warnings").list()->front().text()->find("coarse"), std::string::npos);
}

TEST(PulsedWeightUpdater, ExplainsHowMuchClippingCosts) {
  const UpdateParameters p = typed(PulseType::StochasticCompressed);  // trains of 31 slots at most
  // One d in 200 asks for 32 pulses, where a train holds 31: all samples clip, and little is lost.
  std::vector<float> d(200, 0.1f);
  d.front() = 1.0f;
  const Batch slight = repeatedBatch(4, {1.0f, 0.5f}, d);
  const Value::Map told =
      explainPulses(Context{}, p, kDw, slight.xView(), slight.dView(), 32.0f * kDw);
  EXPECT_EQ(*told.at("clipped_samples").integer(), 4);
  EXPECT_NEAR(*told.at("undelivered").real(), (1.0 - 31.0 / 32.0) / 20.9, 1e-5);
  EXPECT_TRUE(told.at("warnings").list()->empty());
  // All ask for 62 pulses: half of everything is lost.
  const Batch heavy = repeatedBatch(4, {1.0f, 1.0f}, {1.0f, -1.0f});
  const Value::Map worse =
      explainPulses(Context{}, p, kDw, heavy.xView(), heavy.dView(), 62.0f * kDw);
  EXPECT_NEAR(*worse.at("undelivered").real(), 0.5, 1e-5);
  ASSERT_EQ(worse.at("warnings").list()->size(), 1u);
  const std::string &text = *worse.at("warnings").list()->front().text();
  EXPECT_EQ(text.find("50 % of this update is lost"), 0u) << text;
  // What is added in floating point loses nothing.
  const Value::Map digital = explainPulses(Context{}, typed(PulseType::None), kDw, heavy.xView(),
                                           heavy.dView(), 62.0f * kDw);
  EXPECT_EQ(*digital.at("undelivered").real(), 0.0);
  EXPECT_TRUE(digital.at("warnings").list()->empty());
}

TEST(PulsedWeightUpdater, RefusesShapesThatDoNotFitAndChangesNothing) {
  const Batch b = randomBatch(4, 5, 3, 1);
  PulsedDevice device(Context{}, noisyDevice(), 5, 3, kDeviceKey);
  const std::vector<float> before = storedWeights(device);
  PulsedWeightUpdater updater(typed(PulseType::StochasticCompressed), kPulseTrainKey);
  EXPECT_THROW(updater.update(Context{}, device, b.xView(), b.dView(), 0.1f, 0), InputError);
  EXPECT_THROW(updater.update(Context{}, device, b.dRows(0, 2), b.xRows(0, 3), 0.1f, 0),
               InputError);
  EXPECT_EQ(storedWeights(device), before);
}

}  // namespace
}  // namespace pulsora::testing
