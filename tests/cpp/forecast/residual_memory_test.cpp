#include "forecast/residual_memory.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "core/check.h"

namespace pulsora {
namespace {

double correctionOf(const ResidualMemory &memory, std::vector<float> key, double prediction,
                    double step) {
  double out = 0.0;
  memory.corrections({}, rowMajor<const float>(key.data(), 1, memory.keySize()), &prediction, step,
                     &out);
  return out;
}

TEST(ResidualMemory, TheWorkedExample) {
  ResidualMemory memory(2, 1000, 2);
  // The linear part of the key [1, 0] is 0.05.
  memory.restore({{.2, 100, .9}, {-.1, 300, .5}, {5, 400, 1}}, {1, 0, 1, 1, 0, 1}, {.03, 7, .02});
  EXPECT_NEAR(correctionOf(memory, {1, 0}, 1.0, 500), .0749847590, 1e-10);
  EXPECT_NEAR(correctionOf(memory, {1, 0}, .3, 500), .06, 1e-15);  // the clamp
  EXPECT_NEAR(correctionOf(memory, {1, 0}, -.3, 500), .06, 1e-15);
}

TEST(ResidualMemory, AnEmptyOneCorrectsNothing) {
  EXPECT_EQ(correctionOf(ResidualMemory(2), {1, 0}, 1.0, 0), 0.0);
}

TEST(ResidualMemory, LearnsALinearPart) {
  ResidualMemory memory(1, 1000, 1);
  const float key = 2.0f;
  memory.remember(&key, 1.0, 0, 1.0);
  EXPECT_EQ(memory.linear(), (std::vector<double>{.02, .01}));
  memory.remember(&key, 1.0, 1, 1.0);  // off by 1 - 0.05
  EXPECT_NEAR(memory.linear()[0], .02 + .02 * .95, 1e-15);
}

TEST(ResidualMemory, KeepsTheLatestAndPrefersThemInTies) {
  ResidualMemory memory(1, 3, 1);
  const float key = 1.0f;
  for (int i = 0; i < 5; ++i) memory.remember(&key, i, i, 1.0);
  ASSERT_EQ(memory.size(), 3);
  EXPECT_EQ(memory.entries().front().residual, 2.0);
  EXPECT_EQ(memory.entries().back().residual, 4.0);
  const double linear = memory.linear()[0] + memory.linear()[1];
  EXPECT_NEAR(correctionOf(memory, {1}, 1e9, 10), .7 * 4.0 + .3 * linear, 1e-12);
  ResidualMemory copy(1, 3, 1);
  copy.restore(memory.entries(), memory.keys(), memory.linear());
  EXPECT_EQ(correctionOf(copy, {.5}, 1e9, 12), correctionOf(memory, {.5}, 1e9, 12));
}

TEST(ResidualMemory, KeysOfNoLengthAndNan) {
  ResidualMemory memory(1, 10, 1);
  const float key = 1.0f;
  memory.remember(&key, 1.0, 0, 1.0);
  const double zero = correctionOf(memory, {0}, 10.0, 0);  // similarity 0, but still the nearest
  EXPECT_NEAR(zero, .7 + .3 * memory.linear()[1], 1e-15);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(correctionOf(memory, {nan}, 1.0, 0) != correctionOf(memory, {nan}, 1.0, 0));
  EXPECT_THROW(memory.remember(&nan, 1.0, 1, 1.0), InputError);
  EXPECT_THROW(memory.remember(&key, 1.0, 1, 0.0), InputError);
  EXPECT_THROW(memory.remember(&key, 1.0, -1, 1.0), InputError);
  EXPECT_THROW(ResidualMemory(0), InputError);
  EXPECT_THROW(memory.restore({}, {1}, {0, 0}), InputError);
  EXPECT_THROW(memory.restore({}, {}, {0, std::nan("")}), InputError);
  EXPECT_THROW(memory.restore({{1.0, 0.0, 2.0}}, {1}, {0, 0}), InputError);
  EXPECT_THROW(memory.restore({{1.0, 0.0, 1.0}}, {nan}, {0, 0}), InputError);
  EXPECT_EQ(memory.size(), 1);
  EXPECT_TRUE(std::isnan(correctionOf(memory, {1}, std::nan(""), 0)));
}

TEST(ResidualMemory, LongKeysDoNotMakeItsLinearPartGrow) {
  ResidualMemory memory(2, 10, 1);
  for (int i = 0; i < 300; ++i) {
    const float key[2] = {i % 2 ? 60.0f : -60.0f, 80.0f};
    memory.remember(key, 1.0, i, 1.0);
  }
  const float key[2] = {60.0f, 80.0f};
  const std::vector<double> &linear = memory.linear();
  EXPECT_NEAR(key[0] * linear[0] + key[1] * linear[1] + linear[2], 1.0, 1e-3);
}

TEST(ResidualMemory, RowsDoNotDependOnThreads) {
  ResidualMemory memory(8);
  std::vector<float> keys;
  std::vector<double> predictions;
  for (int i = 0; i < 400; ++i) {
    for (int j = 0; j < 8; ++j) keys.push_back(static_cast<float>((i * 37 + j * 11) % 19 - 9));
    predictions.push_back(1.0 + i);
    memory.remember(&keys[static_cast<size_t>(i) * 8], i % 7 - 3, i, 1.0 / (1 + i % 3));
  }
  Context threads;
  threads.cpu.threads = 4;
  std::vector<double> one(400), four(400);
  const auto view = rowMajor<const float>(keys.data(), 400, 8);
  memory.corrections({}, view, predictions.data(), 500, one.data());
  memory.corrections(threads, view, predictions.data(), 500, four.data());
  EXPECT_EQ(one, four);
}

}  // namespace
}  // namespace pulsora
