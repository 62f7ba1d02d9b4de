#include "periphery/line_formulas.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "core/check.h"
#include "periphery/read_kernels.h"

namespace pulsora {
namespace {

using Vector = std::vector<float>;

TEST(Converter, RoundsToTheNearestLevelAndHasAsManyAsItsResolutionSays) {
  const Converter adc(2.0 * 3.0 / 12.0, 3.0f, false);  // 12 steps over [-3, 3]
  for (int i = -6; i <= 6; ++i) {
    const float level = 0.5f * float(i);
    for (float off : {-0.24f, 0.0f, 0.24f}) EXPECT_EQ(quantised(adc, level + off, 0.0f), level);
  }
  const Converter continuous(0.0, 3.0f, false);
  EXPECT_EQ(quantised(continuous, 0.123f, 0.9f), 0.123f);
}

TEST(Converter, ABoundOfZeroIsUnlimited) {
  EXPECT_EQ(Converter(0.0, 0.0f, false).bound, kInfinity);
  InputConverter input;
  EXPECT_EQ(convertedInput(input, 1e30f, 1.0f, 0.0f, 0.0f), 1e30f);
}

TEST(Converter, StochasticRoundingTakesTheUpperLevelWithTheRightProbability) {
  const Converter dac(0.25, 1.0f, true);
  // v = 0.3 lies 0.2 of a step above 0.25: the upper level for u >= 0.8.
  EXPECT_EQ(quantised(dac, 0.3f, 0.79f), 0.25f);
  EXPECT_EQ(quantised(dac, 0.3f, 0.81f), 0.5f);
  EXPECT_EQ(quantised(dac, -0.3f, 0.19f), -0.5f);
  EXPECT_EQ(quantised(dac, -0.3f, 0.21f), -0.25f);
  EXPECT_EQ(quantised(dac, 0.5f, 0.999f), 0.5f);
}

TEST(Input, EffectsComeInTheirOrder) {
  InputConverter c;
  c.dac = Converter(0.25, 1.0f, false);
  c.noise = 0.5f;
  c.negativeGain = 0.9f;
  // 6 / 4 -> 1.5 -> clipped to 1 -> noise beyond the bound stays.
  EXPECT_FLOAT_EQ(convertedInput(c, 6.0f, 4.0f, 0.2f, 0.0f), 1.1f);
  // -1 / 4 is a level; noise first, then the asymmetry.
  EXPECT_FLOAT_EQ(convertedInput(c, -1.0f, 4.0f, -0.5f, 0.0f), 0.9f * -0.5f);
  EXPECT_FLOAT_EQ(convertedInput(c, -1.0f, 4.0f, 1.0f, 0.0f), 0.25f);
  // A scale of 0 belongs to a zero row.
  EXPECT_EQ(convertedInput(InputConverter{}, 0.0f, 0.0f, 0.0f, 0.0f), 0.0f);
}

TEST(Input, SignPartsAddUp) {
  for (float v : {-0.7f, 0.0f, 0.3f}) {
    EXPECT_EQ(signPart(v, 0) + signPart(v, 1), v);
    EXPECT_GE(signPart(v, 0), 0.0f);
    EXPECT_LE(signPart(v, 1), 0.0f);
  }
}

TEST(Array, IrDropFollowsItsFormula) {
  ArrayEffects e;
  e.irDrop = 0.7f;
  e.wireScale = 0.01f;
  const LineSums in{2.0f, 30.0f, 1.5f, 0.0f, 0.0f};
  const double a = 0.3;
  const double drop = 0.7 * a * (0.05 * a * a - 0.2 * a + 0.5) * 1.5;
  EXPECT_NEAR(arrayOutput(e, in, 0.0f, 0.0f), 2.0 - drop, 1e-6);
  EXPECT_FLOAT_EQ(lateness(0, 4), 0.0f);
  EXPECT_FLOAT_EQ(lateness(3, 4), 1.0f - 1.0f / 16.0f);
}

/// The share of its ideal current that a cell delivers.
float kept(const WireLoss &loss, float late) { return 1.0f - loss.everywhere - loss.far * late; }

TEST(Wires, KeepThePolynomialUpToTheJunction) {
  for (float a = 0.0f; a <= kWireJunction; a += 0.001f) {
    EXPECT_EQ(wireDrop(a).far, a * (0.05f * (a * a) - 0.2f * a + 0.5f));
    EXPECT_EQ(wireDrop(a).everywhere, 0.0f);
  }
}

TEST(Wires, TheJunctionIsTheOnlyCrossingOfBothCurves) {
  const auto above = [](double a) {
    const double t = std::tanh(std::sqrt(a)) / std::sqrt(a);
    return a * (0.05 * a * a - 0.2 * a + 0.5) - 1.5 * (1.0 - t);
  };
  EXPECT_NEAR(above(double(kWireJunction)), 0.0, 1e-8);
  for (double a = 0.01; a < 1e4; a *= 1.01) EXPECT_EQ(above(a) > 0.0, a > double(kWireJunction));
  const WireLoss below = wireDrop(kWireJunction);
  const WireLoss beyond = wireDrop(std::nextafter(kWireJunction, 2.0f));
  EXPECT_NEAR(below.far, beyond.far, 2e-7);
}

TEST(Wires, AUniformLineDeliversTheTanhOfItsLengthBeyondTheJunction) {
  for (double a = double(kWireJunction) * 1.0001; a < 1e12; a *= 1.02) {
    const double t = std::tanh(std::sqrt(a)) / std::sqrt(a);
    const WireLoss loss = wireDrop(float(a));
    EXPECT_NEAR(1.0 - double(loss.everywhere) - 2.0 / 3.0 * double(loss.far), t, 3e-7) << a;
    EXPECT_GE(loss.everywhere, 0.0f);
  }
  const WireLoss all = wireDrop(kInfinity);
  EXPECT_EQ(all.everywhere, 1.0f);
  EXPECT_EQ(all.far, 0.0f);
}

TEST(Wires, EachCellKeepsAShareThatFallsWithTheLoad) {
  for (float late : {0.0f, 0.1f, 0.5f, 2.0f / 3.0f, 0.9f, 1.0f}) {
    float earlier = 1.0f;
    for (double a = 1e-6; a < 1e12; a *= 1.001) {
      const float now = kept(wireDrop(float(a)), late);
      ASSERT_LE(now, earlier + 3e-7f) << a << ", lateness " << late;
      ASSERT_GE(now, -3e-7f) << a << ", lateness " << late;
      earlier = now;
    }
  }
}

TEST(Wires, AnOverflowingLoadLeavesNothing) {
  ArrayEffects e;
  e.irDrop = 1.0f;
  e.wireScale = 1e30f;
  EXPECT_EQ(arrayOutput(e, {2.0f, 1e20f, 1.5f, 0.0f, 0.0f}, 0.0f, 0.0f), 0.0f);
}

TEST(Array, LineVoltageIsTheDifferenceToTheReferenceLine) {
  ArrayEffects e;
  e.lineVoltage = true;
  e.negativeWMin = 0.6f;
  e.seriesResistance = 0.05f;
  e.maxSeries = 0.1f;
  const LineSums in{-1.0f, 0.0f, 0.0f, 0.0f, 5.0f};
  const double reference = 3.0, v = 0.02;
  const double expected = (1 - v) * 2.0 / 1.1 - (1 + v) * reference / 1.1;  // both at the limit
  EXPECT_NEAR(arrayOutput(e, in, float(v), 0.0f), expected, 1e-6);
  e.maxSeries = kInfinity;
  const double free = (1 - v) * 2.0 / (1 + 0.05 * 2.0) - (1 + v) * 3.0 / (1 + 0.05 * 3.0);
  EXPECT_NEAR(arrayOutput(e, in, float(v), 0.0f), free, 1e-6);
}

TEST(Array, WeightNoiseGrowsWithTheRootOfItsSquares) {
  ArrayEffects e;
  e.weightNoise = 0.1f;
  EXPECT_NEAR(arrayOutput(e, {1.0f, 0.0f, 0.0f, 4.0f, 0.0f}, 0.0f, -1.5f), 1.0 - 0.3, 1e-6);
}

TEST(Output, AmplifierCompressesAndWeakensNegativeSums) {
  OutputConverter c;
  c.gain = 1.2f;
  c.negativeGain = 0.9f;
  EXPECT_NEAR(amplified(c, 2.0f, 0.1f), 1.2 * 2.0 / 1.2, 1e-6);
  EXPECT_NEAR(amplified(c, -2.0f, 0.1f), 0.9 * -2.0, 1e-6);
}

TEST(Output, NoiseIsDigitisedThenClippedAndReported) {
  OutputConverter c;
  c.adc = Converter(0.5, 2.0f, false);
  c.lowest = -2.0f;
  EXPECT_EQ(digitised(c, 1.0f, 0.1f, 2.0f, 0.0f).value, 1.0f);
  EXPECT_EQ(digitised(c, 1.0f, 0.1f, 3.0f, 0.0f).value, 1.5f);
  EXPECT_EQ(digitised(c, 2.2f, 0.0f, 0.0f, 0.0f).clipped, 0U);  // rounds to the bound
  const Reading high = digitised(c, 2.3f, 0.0f, 0.0f, 0.0f);
  EXPECT_EQ(high.value, 2.0f);
  EXPECT_EQ(high.clipped, 1U);
  const Reading low = digitised(c, -2.3f, 0.0f, 0.0f, 0.0f);
  EXPECT_EQ(low.value, -2.0f);
  EXPECT_EQ(low.clipped, 1U);
  // A gain moves levels and range; the noise stands before it.
  EXPECT_EQ(digitised(c, 0.6f, 0.1f, 1.0f, 0.0f, 2.0f).value, 0.75f);
  EXPECT_EQ(digitised(c, 1.2f, 0.0f, 0.0f, 0.0f, 2.0f).clipped, 1U);
  EXPECT_EQ(digitised(c, 2.3f, 0.0f, 0.0f, 0.0f, 1.0f).value, high.value);
  c.lowest = -kInfinity;
  EXPECT_EQ(digitised(c, -2.3f, 0.0f, 0.0f, 0.0f).clipped, 0U);
}

TEST(Scale, EachNoiseManagementFollowsItsDefinition) {
  const Vector mixed = {0.5f, -2.0f, 1.0f}, negative = {-0.5f, -2.0f}, zero = {0.0f, 0.0f};
  const auto scale = [](NoiseManagement management, const Vector &row) {
    ScaleRule rule;
    rule.management = management;
    rule.constant = 3.0f;
    rule.limit = 1.5f;
    rule.largestFactor = 4.0f;
    rule.weightOverBound = 2.5f;
    const VectorView<const float> view(row.data(), int64_t(row.size()));
    return noiseScale(rule, view, reducedRow<reduce::AbsLargest>(view));
  };
  EXPECT_EQ(scale(NoiseManagement::None, mixed), 1.0f);
  EXPECT_EQ(scale(NoiseManagement::AbsMax, mixed), 1.5f);
  EXPECT_EQ(scale(NoiseManagement::AbsMax, {0.25f, -1.25f}), 1.25f);
  EXPECT_EQ(scale(NoiseManagement::Max, mixed), 1.0f);
  EXPECT_EQ(scale(NoiseManagement::Max, negative), 1.0f);
  EXPECT_EQ(scale(NoiseManagement::Max, zero), 0.0f);
  EXPECT_EQ(scale(NoiseManagement::Constant, zero), 3.0f);
  EXPECT_EQ(scale(NoiseManagement::AverageAbsMax, mixed), 2.0f);
  EXPECT_EQ(scale(NoiseManagement::AbsMaxNPSum, mixed), 5.0f);                  // 2 * 2.5
  EXPECT_EQ(scale(NoiseManagement::AbsMaxNPSum, negative), 2.5f * 2.5f);        // below 4 * 2
  EXPECT_EQ(scale(NoiseManagement::AbsMaxNPSum, {-1.0f, -1.0f, -1.0f}), 4.0f);  // the limit
  EXPECT_EQ(runningMean(0.0f, 2.0f, 0.25f), 2.0f);
  EXPECT_EQ(runningMean(2.0f, 4.0f, 0.25f), 2.5f);
}

TEST(Scale, ReducedRowsAreTheSumsAndMaximaForAnyLengthAndStride) {
  for (int64_t n : {0, 1, 15, 16, 17, 100}) {
    Vector storage(size_t(2 * n + 1));
    for (size_t j = 0; j < storage.size(); ++j) storage[j] = std::sin(float(j) * 1.7f);
    const VectorView<const float> row(storage.data(), n, 2);
    double sum = 0, squares = 0, positive = 0, negative = 0;
    float largest = -kInfinity, absLargest = 0.0f;
    for (int64_t j = 0; j < n; ++j) {
      sum += double(row[j]);
      squares += double(row[j]) * double(row[j]);
      positive += std::fmax(double(row[j]), 0.0);
      negative += std::fmax(-double(row[j]), 0.0);
      largest = std::fmax(largest, row[j]);
      absLargest = std::fmax(absLargest, std::fabs(row[j]));
    }
    EXPECT_NEAR(reducedRow<reduce::Sum>(row), sum, 1e-5);
    EXPECT_NEAR(reducedRow<reduce::Squares>(row), squares, 1e-5);
    EXPECT_NEAR(reducedRow<reduce::PositiveSum>(row), positive, 1e-5);
    EXPECT_NEAR(reducedRow<reduce::NegativeSum>(row), negative, 1e-5);
    EXPECT_EQ(reducedRow<reduce::Largest>(row), largest);
    EXPECT_EQ(reducedRow<reduce::AbsLargest>(row), absLargest);
  }
}

}  // namespace
}  // namespace pulsora
