// noise_merge = "batch": one normal per cell and update (devices/batch_noise.h).

#include "devices/batch_noise.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "array/device_contract.h"
#include "compounds/single.h"
#include "devices/constant_step.h"
#include "tile/tile.h"

namespace pulsora::testing {
namespace {

constexpr int64_t kRows = 19;
constexpr int64_t kCols = 151;
constexpr uint64_t kFirstSample = 1021;
constexpr float kStep = 0.004f;

DeviceParams constantStep(const std::string &noiseMerge, Value::Map values = {}) {
  values.emplace("dw_min", Value(static_cast<double>(kStep)));
  values["noise_merge"] = Value(noiseMerge);
  return makeParams("ConstantStep", std::move(values));
}

/// Weights after the batches; starts on both sides of the bounds.
std::vector<float> updated(const DeviceParams &params,
                           const std::vector<const TestWords *> &batches, const Context &context,
                           int64_t rows = kRows, int64_t cols = kCols) {
  PulsedDevice array(context, params, rows, cols, kKey);
  fillWeights(array, startWeight);
  for (const TestWords *batch : batches) array.applyPulses(context, batch->view());
  return storedWeights(array);
}

struct ByRule {
  std::vector<float> weights;
  std::vector<bool> atOnce;
};

/// The definition, cell by cell: at once where that holds, otherwise sample by sample.
ByRule byRule(const DeviceParams &params, const TestWords &batch, int64_t rows = kRows,
              int64_t cols = kCols) {
  using Params = ConstantStep::Params;
  const auto &p = params.as<Params>();
  PulsedDevice array(cpu(), params, rows, cols, kKey);
  fillWeights(array, startWeight);
  const auto planes = storedCells(array);
  const PulseWords words = batch.view();
  ByRule out{storedWeights(array), std::vector<bool>(static_cast<size_t>(array.size()))};
  const auto bySample = referenceUpdate<ConstantStep>(params, array, {&batch});
  for (size_t i = 0; i < out.weights.size(); ++i) {
    const auto response = ConstantStep::response(cellAt<ConstantStep>(planes, i), p);
    int up = 0;
    int down = 0;
    for (int64_t s = 0; s < words.samples; ++s) {
      const int n =
          batch.coincidences(s, static_cast<int64_t>(i) / cols, static_cast<int64_t>(i) % cols);
      up += std::max(n, 0);
      down += std::max(-n, 0);
    }
    bool holds = false;
    const float z = normalOfUpdate(kKey, i, words.firstSample);
    const float merged = mergedPulses<ConstantStep>(
        out.weights[i], static_cast<float>(up), static_cast<float>(down), response, p, z, holds);
    out.weights[i] = holds ? merged : bySample[i];
    out.atOnce[i] = holds;
  }
  return out;
}

TEST(BatchNoise, Property36_EveryKernelReproducesTheRuleToTheBit) {
  const DeviceParams device = constantStep("batch", {{"corrupt_devices_prob", Value(0.05)}});
  for (int slots : {1, 3, 8, 16, 17, 31, 32, 40}) {
    const TestWords words = TestWords::random(kRows, kCols, 13, slots, 99, kFirstSample);
    const ByRule rule = byRule(device, words);
    for (Isa isa : supportedIsas()) {
      for (int threads : {1, 2, 3}) {
        EXPECT_TRUE(sameBits(updated(device, {&words}, cpu(threads, isa)), rule.weights))
            << isaName(isa) << ", " << slots << " slots, " << threads << " threads";
      }
    }
  }
}

TEST(BatchNoise, Property36_OtherPulseKindsAndNarrowArraysToo) {
  const DeviceParams device = constantStep("batch");
  for (PulseKind kind : {PulseKind::TwoPass, PulseKind::MeanCount, PulseKind::Implicit}) {
    for (int slots : {1, 3, 31}) {
      const TestWords words = TestWords::random(11, 7, 13, slots, 5, kFirstSample).as(kind, 5);
      const ByRule rule = byRule(device, words, 11, 7);
      for (Isa isa : supportedIsas()) {
        EXPECT_TRUE(sameBits(updated(device, {&words}, cpu(1, isa), 11, 7), rule.weights))
            << isaName(isa) << ", " << slots << " slots, kind " << static_cast<int>(kind);
      }
    }
  }
}

TEST(BatchNoise, Property44_CellsNearABoundTakeTheSamplesOneByOne) {
  const TestWords words = TestWords::random(kRows, kCols, 13, 8, 99, kFirstSample);
  const DeviceParams device = constantStep("batch");
  const ByRule rule = byRule(device, words);
  const auto merged = updated(device, {&words}, cpu());
  const auto bySample = updated(constantStep("none"), {&words}, cpu());
  PulsedDevice array(cpu(), device, kRows, kCols, kKey);
  fillWeights(array, startWeight);
  const auto before = storedWeights(array);
  const CellDescription cells = describe(array);
  int near = 0;
  int different = 0;
  for (size_t i = 0; i < merged.size(); ++i) {
    int up = 0;
    int down = 0;
    for (int64_t s = 0; s < 13; ++s) {
      const int n =
          words.coincidences(s, static_cast<int64_t>(i) / kCols, static_cast<int64_t>(i) % kCols);
      up += std::max(n, 0);
      down += std::max(-n, 0);
    }
    // In double precision and with a little more room than the rule's five standard deviations.
    const double sUp = static_cast<double>(cells.stepUp[i]);
    const double sDown = -static_cast<double>(cells.stepDown[i]);
    const double sd = 0.3 * std::sqrt(sUp * sUp * up + sDown * sDown * down);
    const double w = static_cast<double>(before[i]);
    const bool clear = w + sUp * up + 5.0 * sd < static_cast<double>(cells.wMax[i]) - 1e-5 &&
                       w - sDown * down - 5.0 * sd > static_cast<double>(cells.wMin[i]) + 1e-5;
    const bool close = w + sUp * up + 5.0 * sd > static_cast<double>(cells.wMax[i]) + 1e-5 ||
                       w - sDown * down - 5.0 * sd < static_cast<double>(cells.wMin[i]) - 1e-5;
    if (clear) {
      EXPECT_TRUE(rule.atOnce[i]) << i;
      different += merged[i] != bySample[i];
    }
    if (close && up + down > 0) {
      EXPECT_FALSE(rule.atOnce[i]) << i;
      EXPECT_EQ(bitCast<uint32_t>(merged[i]), bitCast<uint32_t>(bySample[i])) << i;
      ++near;
    }
  }
  EXPECT_GT(near, 100);
  EXPECT_GT(different, 1000);
}

/// mixedPulses() of a model that states it: pulses in one direction are those of pulses(), both
/// directions add up, whatever the weight.
template <class Device>
int checkMixedPulses() {
  if constexpr (kMergesNoise<Device> && !kMergesInOrder<Device>) {
    typename Device::Params p;
    p.up_down = 0.1f;
    const auto r = Device::response(typename Device::Cell{}, p);
    for (const float w : {-0.3f, 0.0f, 0.2f}) {
      for (const float n : {1.0f, 2.0f, 40.0f}) {
        const float none = 0.0f;
        const Moments both = Device::mixedPulses(w, n, 3.0f * n, r, p);
        const Moments up = Device::pulses(w, pulseSum(n, p), true, r, p);
        const Moments down = Device::pulses(w, pulseSum(3.0f * n, p), false, r, p);
        EXPECT_NEAR(Device::mixedPulses(w, n, none, r, p).mean, up.mean, 1e-7f);
        EXPECT_NEAR(Device::mixedPulses(w, none, 3.0f * n, r, p).mean, down.mean, 1e-7f);
        EXPECT_NEAR(Device::mixedPulses(w, n, none, r, p).sd, std::abs(up.sd),
                    1e-6f * std::abs(up.sd));
        EXPECT_NEAR(both.mean - w, (up.mean - w) + (down.mean - w), 2e-7f);
        EXPECT_NEAR(both.sd, std::hypot(up.sd, down.sd), 1e-6f * both.sd);
        EXPECT_EQ(both.skewnessSquared, 0.0f);
      }
      EXPECT_EQ(Device::mixedPulses(w, 0.0f, 0.0f, r, p).sd, 0.0f);
    }
    return 1;
  }
  return 0;
}

template <class... Devices>
int checkAllMixedPulses(TypeList<Devices...>) {
  return (checkMixedPulses<Devices>() + ...);
}

TEST(BatchNoise, Property44_ModelsThatTakePartSumTheirPulses) {
  EXPECT_GE(checkAllMixedPulses(AllDevices{}), 1);
}

TEST(BatchNoise, Property40_TheLedgerCountsEveryCoincidence) {
  for (int slots : {1, 31, 40}) {
    for (PulseKind kind : {PulseKind::Words, PulseKind::TwoPass, PulseKind::MeanCount}) {
      const TestWords words = TestWords::random(kRows, kCols, 13, slots, 7).as(kind, 7);
      PulsedDevice array(cpu(3), constantStep("batch"), kRows, kCols, kKey);
      array.applyPulses(cpu(3), words.view());
      uint64_t count = 0;
      for (int64_t s = 0; s < 13; ++s) {
        for (int64_t i = 0; i < array.size(); ++i)
          count += static_cast<uint64_t>(std::abs(words.coincidences(s, i / kCols, i % kCols)));
      }
      EXPECT_EQ(array.pulseCount(cpu()), count);
    }
  }
}

TEST(BatchNoise, Property44_DrawsAgreeWithTheSampleBySampleRuleInDistribution) {
  // 1e6 cells that all see the same 12 samples: 6 steps up of 3 pulses and 6 down of 3, with steps
  // of different size; mean and spread at 5 sigma, Kolmogorov-Smirnov on 1e5 cells at p = 1e-6.
  constexpr int64_t kSide = 1000;
  constexpr size_t kSome = 100000;
  constexpr double kCells = 1e6;
  constexpr double kUp = 0.001 * 1.0;
  constexpr double kDown = 0.001 * 0.8;
  constexpr int kPulses = 18;
  const double limit = std::sqrt(std::log(2.0 / 1e-6) / 2.0) * std::sqrt(2.0 / kSome);
  const double mean = 0.05 + kPulses * (kUp - kDown);
  const double sd = 0.3 * std::sqrt(kPulses * (kUp * kUp + kDown * kDown));
  std::vector<float> drawn[2];
  for (const int which : {0, 1}) {
    Value::Map values = withoutSpread("ConstantStep");
    values["dw_min"] = 0.001;
    values["up_down"] = 0.2;
    values["w_max"] = 1.0;
    values["w_min"] = -1.0;
    const DeviceParams params = constantStep(which == 0 ? "batch" : "none", values);
    PulsedDevice array(cpu(2), params, kSide, kSide, which == 0 ? kKey : RandomKey{7, 8});
    fillWeights(array, [](int64_t) { return 0.05f; });
    TestWords words = TestWords::all(kSide, kSide, 12, 3, true, 500);
    words.turn(6, 12);
    array.applyPulses(cpu(2), words.view());
    drawn[which] = storedWeights(array);
    const Sample sample = statistics(drawn[which]);
    EXPECT_NEAR(sample.mean, mean, 5.0 * sd / std::sqrt(kCells));
    EXPECT_NEAR(sample.sd, sd, 5.0 * sd / std::sqrt(2.0 * kCells));
    drawn[which].resize(kSome);
  }
  EXPECT_LT(kolmogorovSmirnov(drawn[0], drawn[1]), limit);
}

TEST(BatchNoise, Property44_NeighboursAndUpdatesAreIndependent) {
  // 1e5 pairs of neighbouring cells, and of one cell in two updates: correlation at 5 sigma.
  constexpr size_t kPairs = 100000;
  double neighbours = 0.0;
  double updates = 0.0;
  for (uint64_t cell = 0; cell < kPairs; ++cell) {
    const double z = static_cast<double>(normalOfUpdate(kKey, cell, 64));
    neighbours += z * static_cast<double>(normalOfUpdate(kKey, cell + 1, 64));
    updates += z * static_cast<double>(normalOfUpdate(kKey, cell, 65));
  }
  EXPECT_LT(std::abs(neighbours), 5.0 * std::sqrt(static_cast<double>(kPairs)));
  EXPECT_LT(std::abs(updates), 5.0 * std::sqrt(static_cast<double>(kPairs)));
}

TEST(BatchNoise, Property44_WithoutCycleNoiseBothRulesAgree) {
  // Steps of 2^-9 and bounds far away: sums of pulses are exact.
  Value::Map values = withoutSpread("ConstantStep");
  values["dw_min"] = 0x1p-9;
  values["dw_min_std"] = 0.0;
  values["w_max"] = 8.0;
  values["w_min"] = -8.0;
  const TestWords words = TestWords::random(kRows, kCols, 13, 5, 3);
  std::vector<float> weights[2];
  for (const int which : {0, 1}) {
    PulsedDevice array(cpu(), constantStep(which == 0 ? "batch" : "none", values), kRows, kCols,
                       kKey);
    array.applyPulses(cpu(), words.view());
    weights[which] = storedWeights(array);
  }
  EXPECT_EQ(weights[0], weights[1]);
}

TEST(BatchNoise, OtherModelsRefuseIt) {
  const std::set<std::string> kLinear = {"ConstantStep", "LinearStep", "SoftBounds",
                                         "SoftBoundsReference"};
  for (const DeviceModel &model : deviceModels()) {
    if (kLinear.count(model.name) != 0) {
      makeParams(model.name, {{"noise_merge", Value("batch")}});
      continue;
    }
    if (isFromOutside(model.name)) continue;
    try {
      makeParams(model.name, {{"noise_merge", Value("batch")}});
      ADD_FAILURE() << model.name << " accepts noise_merge='batch'";
    } catch (const ConfigError &error) {
      const std::string text = error.what();
      for (const std::string part : {"device.noise_merge", "'batch'", "noise_merge='none'"})
        EXPECT_NE(text.find(part), std::string::npos) << text;
      EXPECT_NE(text.find(model.name), std::string::npos) << text;
    }
  }
  try {
    constantStep("batch", {{"pulse_noise", Value("sequential")}});
    ADD_FAILURE() << "accepts a draw per pulse and a draw per update";
  } catch (const ConfigError &error) {
    EXPECT_NE(std::string(error.what()).find("device.pulse_noise"), std::string::npos)
        << error.what();
  }
}

TEST(BatchNoise, Property38_ATileGoesOnAsIfNeverStopped) {
  TileConfig config;
  SingleParams single;
  single.device = constantStep("batch", {{"write_noise_std", Value(0.5)}});
  config.compound = single;
  std::vector<float> x(8 * 33);
  std::vector<float> d(8 * 21);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  for (size_t i = 0; i < d.size(); ++i) d[i] = std::cos(static_cast<float>(3 * i));
  const auto train = [&](Tile &tile) {
    tile.update(rowMajor<const float>(x.data(), 8, 33), rowMajor<const float>(d.data(), 8, 21),
                0.05f);
  };
  Tile tile(21, 33, config, 5);
  train(tile);
  const State stopped = tile.state();
  Tile copy(21, 33, config, 5);
  copy.loadState(stopped);
  train(tile);
  train(copy);
  const State a = tile.state();
  const State b = copy.state();
  for (const auto &[name, tensor] : a.tensors) EXPECT_EQ(tensor.bytes, b.tensors.at(name).bytes);
  EXPECT_EQ(*single.device.write().map()->at("noise_merge").text(), "batch");
}

}  // namespace
}  // namespace pulsora::testing
