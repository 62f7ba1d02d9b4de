// Properties of the cells of every device model.

#include <cmath>
#include <cstddef>

#include "array/device_contract.h"
#include "util/fnv_hash.h"

namespace pulsora::testing {
namespace {

class DeviceCells : public DeviceContract {};
INSTANTIATE_TEST_SUITE_P(Models, DeviceCells, ::testing::ValuesIn(modelNames()), testName);

void expectWithinBounds(const PulsedDevice &device, const CellDescription &cells) {
  const std::vector<float> weights = storedWeights(device);
  for (size_t i = 0; i < weights.size(); ++i) {
    ASSERT_GE(weights[i], cells.wMin[i]);
    ASSERT_LE(weights[i], cells.wMax[i]);
  }
}

TEST_P(DeviceCells, Property31_BoundsHoldUnderRandomOperations) {
  constexpr int kOperations = 100000;
  const DeviceParams device = params({{"dw_min", 0.05},
                                      {"corrupt_devices_prob", 0.1},
                                      {"lifetime", 20.0},
                                      {"reset_dtod", 0.3},
                                      {"reset_std", 0.3},
                                      {"diffusion", 0.1}});
  PulsedDevice array(cpu(), device, 3, 5, kKey);
  const CellDescription bounds = describe(array);
  expectWithinBounds(array, bounds);
  std::vector<TestWords> batches;
  for (int slots : {1, 3, 8, 31, 40}) {
    for (uint64_t seed = 0; seed < 20; ++seed)
      batches.push_back(TestWords::random(3, 5, 2, slots, seed, 2 * seed));
  }
  std::vector<float> values(15);
  for (uint64_t op = 0; op < kOperations; ++op) {
    const Philox4 random = draw({1, 2}, Purpose::UserDraw, 0, op);
    switch (random.v[0] % 8) {
      case 0:
        for (size_t i = 0; i < values.size(); ++i) {
          values[i] = 4.0f * uniform(draw({3, 4}, Purpose::UserDraw, i, op).v[0]) - 2.0f;
        }
        array.setWeights(cpu(), rowMajor<const float>(values.data(), 3, 5), op);
        break;
      case 1:
        array.relax(cpu(), op);
        break;
      case 2:
        array.resetColumns(cpu(), random.v[1] % 5, random.v[2] % 6, 0.7f, op);
        break;
      default:
        array.applyPulses(cpu(), batches[random.v[1] % batches.size()].view());
    }
    expectWithinBounds(array, bounds);
    if (HasFatalFailure()) return;
  }
}

TEST_P(DeviceCells, Property07_ZeroPulsesChangeNothing) {
  for (int slots : {1, 3, 8, 31, 40}) {
    PulsedDevice array(cpu(), params(), 5, 70, kKey);
    fillWeights(array, [](int64_t i) { return 0.001f * static_cast<float>(i % 100); });
    const std::vector<float> before = storedWeights(array);
    array.applyPulses(cpu(), TestWords(5, 70, 13, slots).view());
    array.applyPulses(cpu(), TestWords(5, 70, 0, slots).view());
    EXPECT_EQ(storedWeights(array), before);
    EXPECT_EQ(array.pulseCount(cpu()), 0u);
  }
}

TEST_P(DeviceCells, Property08_EqualSignsStepDownDifferentSignsUp) {
  const DeviceParams device = params({{"dw_min_std", 0.0}});
  for (bool up : {true, false}) {
    PulsedDevice array(cpu(), device, 4, 70, kKey);
    fillWeights(array, [](int64_t) { return 0.05f; });
    const CellDescription cells = describe(array);
    const std::vector<float> before = storedWeights(array);
    array.applyPulses(cpu(), TestWords::all(4, 70, 1, 1, up).view());
    const std::vector<float> after = storedWeights(array);
    for (size_t i = 0; i < after.size(); ++i) {
      const float step = up ? cells.stepUp[i] : cells.stepDown[i];
      EXPECT_EQ(after[i], std::clamp(before[i] + step, cells.wMin[i], cells.wMax[i]));
      if (up) {
        EXPECT_GE(step, 0.0f);
      } else {
        EXPECT_LE(step, 0.0f);
      }
    }
    EXPECT_NE(before, after);
    EXPECT_EQ(array.pulseCount(cpu()), 280u);
  }
}

TEST_P(DeviceCells, WithoutSpreadCellsAreEqualAndNominal) {
  for (double upDown : {0.0, 0.259, -0.4}) {
    Value::Map values =
        withoutSpread(GetParam(), {{"up_down", upDown}, {"w_max", 0.55}, {"w_min", -0.45}});
    const DeviceParams device = makeParams(GetParam(), values);
    const PulsedDevice array(cpu(), device, 3, 5, kKey);
    const auto planes = storedCells(array);
    for (size_t plane = 0; plane < planes.size(); ++plane) {
      for (const float value : planes[plane]) EXPECT_EQ(value, nominalCell()[plane]);
    }
    const CellDescription cells = describe(array);
    for (size_t i = 0; i < 15; ++i) {
      EXPECT_EQ(cells.wMax[i], 0.55f);
      EXPECT_EQ(cells.wMin[i], -0.45f);
      EXPECT_EQ(cells.stepUp[i], cells.stepUp[0]);
      EXPECT_EQ(cells.stepDown[i], cells.stepDown[0]);
    }
  }
}

TEST_P(DeviceCells, SpreadsHaveTheirMeanAndStandardDeviation) {
  // 1e5 cells. Without enforce_consistency nothing is folded or swapped.
  const PulsedDevice array(cpu(),
                           params({{"w_max_dtod", 0.1},
                                   {"w_min_dtod", 0.2},
                                   {"dw_min_dtod", 0.15},
                                   {"up_down_dtod", 0.05},
                                   {"enforce_consistency", false}}),
                           250, 400, kKey);
  const auto planes = storedCells(array);
  const double gainSd = std::sqrt(0.15 * 0.15 + 0.05 * 0.05);
  expectNormal(planes[0], 1.0, gainSd);
  expectNormal(planes[1], 1.0, gainSd);
  expectNormal(planes[2], 1.0, 0.1);
  expectNormal(planes[3], 1.0, 0.2);
  std::vector<float> difference(planes[0].size());
  double covariance = 0.0;
  for (size_t i = 0; i < difference.size(); ++i) {
    difference[i] = planes[0][i] - planes[1][i];
    covariance += static_cast<double>((planes[2][i] - 1.0f) * (planes[3][i] - 1.0f)) / 1e5;
  }
  expectNormal(difference, 0.0, 0.1);  // 2 up_down_dtod
  EXPECT_NEAR(covariance, 0.0, 5.0 * 0.1 * 0.2 / std::sqrt(1e5));

  const PulsedDevice logNormal(
      cpu(),
      params({{"dw_min_dtod_log_normal", true}, {"dw_min_dtod", 0.5}, {"up_down_dtod", 0.0}}), 250,
      400, kKey);
  std::vector<float> logarithms = storedCells(logNormal)[0];
  for (float &gain : logarithms) gain = std::log(gain);
  expectNormal(logarithms, 0.0, 0.5);
}

TEST_P(DeviceCells, StoredCellsAreSampledCellsToElevenBits) {
  const DeviceParams device = params({{"corrupt_devices_prob", 0.05}, {"perfect_bias", true}});
  const auto stored = storedCells(PulsedDevice(cpu(), device, 60, 70, kKey));
  const auto sampled = typed().sampled(device, 4200, 70);
  ASSERT_EQ(stored.size(), sampled.size());
  for (size_t plane = 0; plane < stored.size(); ++plane) {
    for (size_t i = 0; i < stored[plane].size(); ++i) {
      EXPECT_NEAR(stored[plane][i], sampled[plane][i],
                  std::max(std::abs(sampled[plane][i]) * 0x1p-11f, 0x1p-25f));
    }
  }
}

TEST_P(DeviceCells, TheKeyDecidesTheCells) {
  const auto cells = [&](const DeviceParams &device, RandomKey key, int threads) {
    return storedCells(PulsedDevice(cpu(threads), device, 30, 70, key));
  };
  const auto first = cells(params(), kKey, 1);
  EXPECT_EQ(first, cells(params(), kKey, 3));
  EXPECT_NE(first, cells(params(), {5, 6}, 1));
}

TEST_P(DeviceCells, AConstructionSeedDecidesTheCellsOfEachSlotWhateverTheKey) {
  const auto cells = [&](const DeviceParams &device, RandomKey key, uint32_t slot) {
    return storedCells(PulsedDevice(cpu(), device, 30, 70, key, slot));
  };
  // Spreads that are stored beside the cells come from the seed as well.
  const auto resets = [&](const DeviceParams &device, RandomKey key, uint32_t slot) {
    State state;
    PulsedDevice(cpu(), device, 30, 70, key, slot).saveTo(cpu(), state, "");
    return state.tensors.at("resets").bytes;
  };
  const DeviceParams seeded = params({{"construction_seed", 7}, {"reset_dtod", 0.1}});
  EXPECT_EQ(cells(seeded, kKey, 0), cells(seeded, {5, 6}, 0));
  EXPECT_EQ(cells(seeded, kKey, 2), cells(seeded, {5, 6}, 2));
  EXPECT_NE(cells(seeded, kKey, 0), cells(seeded, kKey, 1));
  EXPECT_NE(cells(seeded, kKey, 1), cells(seeded, kKey, 2));
  EXPECT_EQ(resets(seeded, kKey, 1), resets(seeded, {5, 6}, 1));
  EXPECT_NE(resets(seeded, kKey, 0), resets(seeded, kKey, 1));
  // Slot 0 has the cells that an array by itself has with that key.
  const DeviceParams keyed = params({{"reset_dtod", 0.1}});
  EXPECT_EQ(cells(seeded, kKey, 0), cells(keyed, makeKey(7, 0, 0), 0));
  // Without a construction seed the key alone decides.
  EXPECT_NE(cells(seeded, kKey, 0), cells(keyed, kKey, 0));
  EXPECT_EQ(cells(keyed, kKey, 0), cells(keyed, kKey, 1));
}

// Every version of Pulsora makes the same simulated chip from a seed.
TEST(ConstructionSeed, GivesASingleArrayTheCellsOfEarlierVersions) {
  const PulsedDevice array(
      cpu(), makeParams("ConstantStep", {{"construction_seed", 7}, {"reset_dtod", 0.1}}), 5, 9,
      kKey);
  State state;
  array.saveTo(cpu(), state, "");
  FnvHash hash;
  for (const char *name : {"cells", "resets"}) {
    for (const std::byte byte : state.tensors.at(name).bytes)
      hash.add(std::to_integer<uint32_t>(byte));
  }
  EXPECT_EQ(hash.value(), 0x13B7A914E0EB27F5U);
}

TEST_P(DeviceCells, PerfectBiasCellsAreNominalWithWideBoundsAndNeverStuck) {
  const PulsedDevice array(cpu(), params({{"perfect_bias", true}, {"corrupt_devices_prob", 1.0}}),
                           6, 9, kKey);
  const auto planes = storedCells(array);
  for (size_t i = 0; i < planes[0].size(); ++i) {
    const bool bias = i % 9 == 8;
    EXPECT_EQ(planes[0][i], bias ? 1.0f : 0.0f);
    EXPECT_EQ(planes[1][i], bias ? 1.0f : 0.0f);
    if (bias) {
      EXPECT_EQ(planes[2][i], 100.0f);
      EXPECT_EQ(planes[3][i], 100.0f);
    }
  }
}

TEST_P(DeviceCells, CorruptCellsStayStuckWithinTheirRange) {
  constexpr double kShare = 0.3;
  const DeviceParams device = makeParams(
      GetParam(),
      {{"corrupt_devices_prob", kShare}, {"corrupt_devices_range", 0.1}, {"diffusion", 0.1}});
  PulsedDevice array(cpu(), device, 100, 100, kKey);
  const CellDescription cells = describe(array);
  const std::vector<float> before = storedWeights(array);
  const auto planes = storedCells(array);
  fillWeights(array, [](int64_t) { return 0.5f; });
  array.applyPulses(cpu(), TestWords::random(100, 100, 13, 31, 1).view());
  array.relax(cpu(), 0);
  array.resetColumns(cpu(), 0, 100, 1.0f, 0);
  const std::vector<float> after = storedWeights(array);
  std::vector<float> stuck;
  for (size_t i = 0; i < before.size(); ++i) {
    if (planes[0][i] != 0.0f || planes[1][i] != 0.0f) continue;
    EXPECT_EQ(cells.wMax[i], cells.wMin[i]);
    EXPECT_EQ(before[i], cells.wMax[i]);
    EXPECT_EQ(after[i], before[i]);
    EXPECT_LE(std::abs(before[i]), 0.1f * (1.0f + 0x1p-11f));
    stuck.push_back(before[i]);
  }
  EXPECT_NEAR(static_cast<double>(stuck.size()), 1e4 * kShare,
              5.0 * std::sqrt(1e4 * kShare * (1.0 - kShare)));
  EXPECT_NEAR(statistics(stuck).mean, 0.0,
              5.0 * 0.1 / std::sqrt(3.0 * static_cast<double>(stuck.size())));
}

}  // namespace
}  // namespace pulsora::testing
