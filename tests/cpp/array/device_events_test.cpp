// Events other than pulses for the cells of every device model.

#include <cmath>

#include "array/device_contract.h"

namespace pulsora::testing {
namespace {

class DeviceEvents : public DeviceContract {};
INSTANTIATE_TEST_SUITE_P(Models, DeviceEvents, ::testing::ValuesIn(modelNames()), testName);

TEST_P(DeviceEvents, WriteNoiseHidesTheStoredWeightAndIsDrawnAnew) {
  const TestWords words = TestWords::random(100, 100, 3, 8, 3);
  PulsedDevice clean(cpu(), params(), 100, 100, kKey);
  PulsedDevice noisy(cpu(), params({{"write_noise_std", 5.0}}), 100, 100, kKey);
  std::vector<float> previous;
  for (int round = 0; round < 2; ++round) {
    clean.applyPulses(cpu(), words.view());
    noisy.applyPulses(cpu(), words.view());
    EXPECT_EQ(storedWeights(noisy), storedWeights(clean));
    std::vector<float> noise = visibleWeights(noisy);
    const std::vector<float> stored = storedWeights(noisy);
    for (size_t i = 0; i < noise.size(); ++i) noise[i] -= stored[i];
    expectNormal(noise, 0.0, 5.0 * 0.001);
    fillWeights(noisy, [&](int64_t i) { return stored[static_cast<size_t>(i)]; }, 17);
    EXPECT_NE(visibleWeights(noisy), visibleWeights(clean));
  }
  PulsedDevice quiet(cpu(), params({{"write_noise_std", 5.0}, {"apply_write_noise_on_set", false}}),
                     100, 100, kKey);
  fillWeights(quiet, startWeight);
  EXPECT_EQ(visibleWeights(quiet), storedWeights(quiet));
}

/// No spread of bounds, and bounds far away.
Value::Map wide(Value::Map values) {
  values["w_max"] = Value(20.0);
  values["w_min"] = Value(-20.0);
  values["w_max_dtod"] = Value(0.0);
  values["w_min_dtod"] = Value(0.0);
  return values;
}

TEST_P(DeviceEvents, Property33_DecayPullsTowardsTheResetValue) {
  for (double lifetime : {40.0, 0.5}) {
    PulsedDevice array(
        cpu(), makeParams(GetParam(), wide({{"lifetime", lifetime}, {"reset", 0.1}})), 6, 70, kKey);
    fillWeights(array, startWeight);
    const std::vector<float> start = storedWeights(array);
    for (uint64_t batch = 0; batch < 10; ++batch) array.relax(cpu(), batch);
    const std::vector<float> end = storedWeights(array);
    const double keep = lifetime > 1.0 ? 1.0 - 1.0 / lifetime : 0.0;
    const double factor = std::pow(keep, 10);
    for (size_t i = 0; i < end.size(); ++i) {
      EXPECT_NEAR(end[i], 0.1 + (static_cast<double>(start[i]) - 0.1) * factor, 1e-6);
    }
  }
}

TEST_P(DeviceEvents, Property33_LifetimesSpreadAsAsked) {
  // 1e4 cells; lifetime 40 (1 +- 0.05), so that 1/lifetime has neither a heavy tail nor a limit
  // within reach.
  PulsedDevice array(cpu(),
                     makeParams(GetParam(), wide({{"lifetime", 40.0}, {"lifetime_dtod", 0.05}})),
                     100, 100, kKey);
  fillWeights(array, [](int64_t) { return 1.0f; });
  array.relax(cpu(), 0);
  std::vector<float> lifetimes = storedWeights(array);
  for (float &w : lifetimes) w = 1.0f / (1.0f - w);
  expectNormal(lifetimes, 40.0, 2.0);
}

TEST_P(DeviceEvents, Property33_DiffusionVarianceGrowsLinearly) {
  PulsedDevice array(cpu(), makeParams(GetParam(), wide({{"diffusion", 0.01}})), 100, 100, kKey);
  std::vector<float> previous(10000, 0.0f);
  for (uint64_t batch = 1; batch <= 16; ++batch) {
    array.relax(cpu(), batch);
    const std::vector<float> weights = storedWeights(array);
    expectNormal(weights, 0.0, 0.01 * std::sqrt(static_cast<double>(batch)));
    std::vector<float> steps = weights;
    for (size_t i = 0; i < steps.size(); ++i) steps[i] -= previous[i];
    expectNormal(steps, 0.0, 0.01);
    previous = weights;
  }
}

TEST_P(DeviceEvents, Property33_ResetDrawsAroundTheResetValueOfEachCell) {
  const DeviceParams device =
      makeParams(GetParam(), wide({{"reset", 0.1}, {"reset_dtod", 0.2}, {"reset_std", 0.05}}));
  PulsedDevice array(cpu(), device, 100, 100, kKey);
  fillWeights(array, [](int64_t) { return 3.0f; });
  array.resetColumns(cpu(), 80, 40, 0.25f, 1);  // wraps: columns 80..99 and 0..19
  double count = 0.0;
  const std::vector<float> some = storedWeights(array);
  for (size_t i = 0; i < some.size(); ++i) {
    const size_t column = i % 100;
    if (some[i] != 3.0f) {
      EXPECT_TRUE(column >= 80 || column < 20);
      count += 1.0;
    }
  }
  EXPECT_NEAR(count, 1000.0, 5.0 * std::sqrt(4000 * 0.25 * 0.75));

  array.resetColumns(cpu(), 0, 100, 1.0f, 2);
  const std::vector<float> first = storedWeights(array);
  array.resetColumns(cpu(), 0, 100, 1.0f, 3);
  std::vector<float> second = storedWeights(array);
  expectNormal(first, 0.1, std::sqrt(0.2 * 0.2 + 0.05 * 0.05));
  for (size_t i = 0; i < second.size(); ++i) second[i] -= first[i];
  expectNormal(second, 0.0, 0.05 * std::sqrt(2.0));  // the cell's own reset value drops out
}

}  // namespace
}  // namespace pulsora::testing
