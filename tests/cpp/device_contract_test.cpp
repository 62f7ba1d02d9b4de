// What every registered device model must do; a new model is tested here before its author writes a test.

#include <cstdlib>
#include <fstream>
#include <map>

#include "device_list.h"
#include "device_test_util.h"
#include "devices/pulse_rule.h"
#include "fnv_hash.h"

namespace RPU::testing {
namespace {

constexpr RandomKey kKey{0x1234ABCDU, 0x89EF5678U};

// --- the typed side of a model: the definition of an update, and its cells before rounding --------------------------

struct TypedModel {
  std::string name;
  std::vector<float> (*reference)(const DeviceParams &, const PulsedDevice &, const std::vector<const TestWords *> &);
  std::vector<std::vector<float>> (*sampled)(const DeviceParams &, int64_t cells, int64_t cols);
  std::vector<float> nominal;
};

template <class Device>
typename Device::Cell cellAt(const std::vector<std::vector<float>> &planes, size_t i) {
  typename Device::Cell cell;
  size_t plane = 0;
  cell.members([&](const char *, float &value) { value = planes[plane++][i]; });
  return cell;
}

/// Weights after the batches, cell by cell and sample by sample, by the rule of pulse_rule.h.
template <class Device>
std::vector<float> referenceUpdate(const DeviceParams &params, const PulsedDevice &device,
                                   const std::vector<const TestWords *> &batches) {
  const auto &p = *static_cast<const typename Device::Params *>(params.data());
  const auto planes = storedCells(device);
  std::vector<float> weights = storedWeights(device);
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto response = Device::response(cellAt<Device>(planes, i), p);
    const auto row = static_cast<int64_t>(i) / device.cols();
    const auto col = static_cast<int64_t>(i) % device.cols();
    for (const TestWords *batch : batches) {
      const PulseWords words = batch->view();
      for (int64_t s = 0; s < words.samples; ++s) {
        const int n = batch->coincidences(s, row, col);
        const uint64_t sample = words.firstSample + static_cast<uint64_t>(s);
        const float z = normalOfSample(kKey, Purpose::CycleNoise, i, sample);
        weights[i] = applyPulses<Device>(weights[i], std::abs(n), n > 0, response, p, z, kKey, i, sample);
      }
    }
  }
  return weights;
}

template <class Device>
std::vector<std::vector<float>> sampledCells(const DeviceParams &params, int64_t cells, int64_t cols) {
  const auto &p = *static_cast<const typename Device::Params *>(params.data());
  std::vector<std::vector<float>> planes;
  for (int64_t i = 0; i < cells; ++i) {
    CellDraws draws(kKey, static_cast<uint64_t>(i));
    typename Device::Cell cell = Device::construct(p, draws, i % cols == cols - 1);
    size_t plane = 0;
    cell.members([&](const char *, float &value) {
      if (planes.size() <= plane) planes.emplace_back();
      planes[plane++].push_back(value);
    });
  }
  return planes;
}

template <class... Devices>
std::vector<TypedModel> typedModels(TypeList<Devices...>) {
  const auto nominal = [](auto cell) {
    std::vector<float> values;
    cell.members([&](const char *, float &value) { values.push_back(value); });
    return values;
  };
  return {TypedModel{Devices::kName, &referenceUpdate<Devices>, &sampledCells<Devices>,
                     nominal(typename Devices::Cell{})}...};
}

// --- the suite --------------------------------------------------------------------------------------------------------

Context cpu(int threads = 1, Isa isa = bestIsa()) {
  Context context;
  context.cpu.threads = threads;
  context.cpu.isa = isa;
  return context;
}

class DeviceContract : public ::testing::TestWithParam<std::string> {
 protected:
  /// Parameters under which every term of a model counts, with `values` on top.
  DeviceParams params(const Value::Map &values = {}) const {
    static const std::map<std::string, Value::Map> kLively = {
        {"LinearStep", {{"gamma_up", 0.3}, {"gamma_down", 0.5}, {"gamma_up_dtod", 0.1}}},
        {"SoftBoundsReference",
         {{"reference_std", 0.05},
          {"slope_up_dtod", 0.1},
          {"slope_down_dtod", 0.1},
          {"subtract_symmetry_point", true}}},
        {"ExpStep", {{"dw_min_std_add", 0.001}, {"dw_min_std_slope", 0.001}}},
        {"PowStep", {{"pow_gamma", 1.7}, {"pow_up_down_dtod", 0.1}}},
        {"PiecewiseStep",
         {{"piecewise_up", Value::List{0.1, 0.5, 1.0, 0.3, 0.1}}, {"piecewise_down", Value::List{0.5, 2.0}}}},
    };
    Value::Map all;
    if (const auto found = kLively.find(GetParam()); found != kLively.end()) all = found->second;
    all["up_down_dtod"] = Value(0.05);
    for (const auto &[name, value] : values) all[name] = value;
    return makeParams(GetParam(), all);
  }
  const TypedModel &typed() const {
    static const std::vector<TypedModel> kModels = typedModels(AllDevices{});
    for (const TypedModel &model : kModels) {
      if (model.name == GetParam()) return model;
    }
    throw std::logic_error("not in the list of devices: " + GetParam());
  }
  std::vector<float> nominalCell() const { return typed().nominal; }
};

INSTANTIATE_TEST_SUITE_P(Models, DeviceContract,
                         ::testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const DeviceModel &model : deviceModels()) names.push_back(model.name);
                           return names;
                         }()),
                         [](const auto &model) { return model.param; });

void expectWithinBounds(const PulsedDevice &device, const CellDescription &cells) {
  const std::vector<float> weights = storedWeights(device);
  for (size_t i = 0; i < weights.size(); ++i) {
    ASSERT_GE(weights[i], cells.wMin[i]);
    ASSERT_LE(weights[i], cells.wMax[i]);
  }
}

TEST_P(DeviceContract, Property31_BoundsHoldUnderRandomOperations) {
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
    for (uint64_t seed = 0; seed < 20; ++seed) batches.push_back(TestWords::random(3, 5, 2, slots, seed, 2 * seed));
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
        array.relax(cpu(), op, 3.0f * uniform(random.v[1]));
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

TEST_P(DeviceContract, ZeroPulsesChangeNothing) {
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

TEST_P(DeviceContract, Property08_EqualSignsStepDownDifferentSignsUp) {
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

TEST_P(DeviceContract, WithoutSpreadCellsAreEqualAndNominal) {
  for (double upDown : {0.0, 0.259, -0.4}) {
    Value::Map values = withoutSpread(GetParam(), {{"up_down", upDown}, {"w_max", 0.55}, {"w_min", -0.45}});
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

TEST_P(DeviceContract, SpreadsHaveTheirMeanAndStandardDeviation) {
  // 1e5 cells. Without enforce_consistency nothing is folded or swapped.
  const PulsedDevice array(cpu(), params({{"w_max_dtod", 0.1},
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
      cpu(), params({{"dw_min_dtod_log_normal", true}, {"dw_min_dtod", 0.5}, {"up_down_dtod", 0.0}}), 250, 400, kKey);
  std::vector<float> logarithms = storedCells(logNormal)[0];
  for (float &gain : logarithms) gain = std::log(gain);
  expectNormal(logarithms, 0.0, 0.5);
}

TEST_P(DeviceContract, StoredCellsAreSampledCellsToElevenBits) {
  const DeviceParams device = params({{"corrupt_devices_prob", 0.05}, {"perfect_bias", true}});
  const auto stored = storedCells(PulsedDevice(cpu(), device, 60, 70, kKey));
  const auto sampled = typed().sampled(device, 4200, 70);
  ASSERT_EQ(stored.size(), sampled.size());
  for (size_t plane = 0; plane < stored.size(); ++plane) {
    for (size_t i = 0; i < stored[plane].size(); ++i) {
      EXPECT_NEAR(stored[plane][i], sampled[plane][i], std::max(std::abs(sampled[plane][i]) * 0x1p-11f, 0x1p-25f));
    }
  }
}

TEST_P(DeviceContract, TheKeyDecidesTheCells) {
  const auto cells = [&](const DeviceParams &device, RandomKey key, int threads) {
    return storedCells(PulsedDevice(cpu(threads), device, 30, 70, key));
  };
  const auto first = cells(params(), kKey, 1);
  EXPECT_EQ(first, cells(params(), kKey, 3));
  EXPECT_NE(first, cells(params(), {5, 6}, 1));
  const DeviceParams seeded = params({{"construction_seed", 7}});
  EXPECT_EQ(cells(seeded, kKey, 1), cells(seeded, {5, 6}, 1));
  EXPECT_NE(first, cells(seeded, kKey, 1));
}

TEST_P(DeviceContract, PerfectBiasCellsAreNominalWithWideBoundsAndNeverStuck) {
  const PulsedDevice array(cpu(), params({{"perfect_bias", true}, {"corrupt_devices_prob", 1.0}}), 6, 9, kKey);
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

TEST_P(DeviceContract, CorruptCellsStayStuckWithinTheirRange) {
  constexpr double kShare = 0.3;
  const DeviceParams device =
      makeParams(GetParam(), {{"corrupt_devices_prob", kShare}, {"corrupt_devices_range", 0.1}, {"diffusion", 0.1}});
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
  EXPECT_NEAR(static_cast<double>(stuck.size()), 1e4 * kShare, 5.0 * std::sqrt(1e4 * kShare * (1.0 - kShare)));
  EXPECT_NEAR(statistics(stuck).mean, 0.0, 5.0 * 0.1 / std::sqrt(3.0 * static_cast<double>(stuck.size())));
}

// --- updates ----------------------------------------------------------------------------------------------------------

constexpr int64_t kRows = 19;
constexpr int64_t kCols = 151;
constexpr uint64_t kFirstSample = 1021;  // not a multiple of 8, so that blocks of normals are cut
float startWeight(int64_t i) { return 0.7f * static_cast<float>(i % 101) / 50.0f - 0.7f; }

std::vector<float> updated(const DeviceParams &params, const std::vector<const TestWords *> &batches,
                           const Context &context, int64_t rows = kRows, int64_t cols = kCols) {
  PulsedDevice array(context, params, rows, cols, kKey);
  fillWeights(array, startWeight);
  for (const TestWords *batch : batches) array.applyPulses(context, batch->view());
  return storedWeights(array);
}

std::vector<float> expected(const TypedModel &model, const DeviceParams &params,
                            const std::vector<const TestWords *> &batches, int64_t rows = kRows, int64_t cols = kCols) {
  PulsedDevice array(cpu(), params, rows, cols, kKey);
  fillWeights(array, startWeight);
  return model.reference(params, array, batches);
}

TEST_P(DeviceContract, Property36_EveryKernelReproducesTheRuleToTheBit) {
  for (const char *noise : {"closed_form", "sequential"}) {
    const DeviceParams device = params({{"pulse_noise", noise}, {"corrupt_devices_prob", 0.05}, {"dw_min", 0.004}});
    for (int slots : {1, 3, 8, 31, 40}) {
      const TestWords words = TestWords::random(kRows, kCols, 13, slots, 99, kFirstSample);
      const std::vector<float> rule = expected(typed(), device, {&words});
      for (Isa isa : supportedIsas()) {
        EXPECT_TRUE(sameBits(updated(device, {&words}, cpu(1, isa)), rule)) << isaName(isa) << ", " << slots << " slots, " << noise;
      }
    }
  }
}

TEST_P(DeviceContract, Property36_OtherPulseKindsAndNarrowArraysToo) {
  const DeviceParams device = params({{"dw_min", 0.004}});
  for (PulseKind kind : {PulseKind::TwoPass, PulseKind::MeanCount, PulseKind::Implicit}) {
    for (int slots : {1, 3, 31}) {
      const TestWords words = TestWords::random(11, 7, 13, slots, 5, kFirstSample).as(kind, 5);
      const std::vector<float> rule = expected(typed(), device, {&words}, 11, 7);
      for (Isa isa : supportedIsas()) {
        EXPECT_TRUE(sameBits(updated(device, {&words}, cpu(1, isa), 11, 7), rule))
            << isaName(isa) << ", " << slots << " slots, kind " << static_cast<int>(kind);
      }
    }
  }
}

TEST_P(DeviceContract, Property37_SplitBatchesAndThreadsChangeNothing) {
  const DeviceParams device = params({{"dw_min", 0.004}});
  for (int slots : {1, 3, 8, 31, 40}) {
    const auto batch = [&](int64_t begin, int64_t end) {
      return TestWords::random(kRows, kCols, end - begin, slots, 99, kFirstSample + static_cast<uint64_t>(begin), 2);
    };
    const TestWords whole = batch(0, 13);
    const std::vector<float> expectedWeights = updated(device, {&whole}, cpu());
    for (int threads : {2, 3}) EXPECT_TRUE(sameBits(updated(device, {&whole}, cpu(threads)), expectedWeights));
    for (int64_t cut : {1, 5, 12}) {
      const TestWords first = batch(0, cut);
      const TestWords second = batch(cut, 13);
      EXPECT_TRUE(sameBits(updated(device, {&first, &second}, cpu()), expectedWeights)) << slots << " slots, cut at " << cut;
    }
  }
}

TEST_P(DeviceContract, Property40_TheLedgerCountsEveryCoincidence) {
  for (int slots : {1, 3, 31, 40}) {
    const TestWords words = TestWords::random(kRows, kCols, 13, slots, 7);
    PulsedDevice array(cpu(3), params(), kRows, kCols, kKey);
    array.applyPulses(cpu(3), words.view());
    uint64_t count = 0;
    for (int64_t s = 0; s < 13; ++s) {
      for (int64_t i = 0; i < array.size(); ++i) {
        count += static_cast<uint64_t>(std::abs(words.coincidences(s, i / kCols, i % kCols)));
      }
    }
    EXPECT_EQ(array.pulseCount(cpu()), count);
  }
}

TEST_P(DeviceContract, Property38_AStateGoesOnAsIfNeverStopped) {
  const DeviceParams device = params({{"lifetime", 50.0},
                                      {"lifetime_dtod", 0.2},
                                      {"diffusion", 0.01},
                                      {"diffusion_dtod", 0.2},
                                      {"reset_dtod", 0.1},
                                      {"write_noise_std", 2.0}});
  const TestWords words = TestWords::random(kRows, kCols, 5, 8, 3);
  PulsedDevice array(cpu(), device, kRows, kCols, kKey);
  array.applyPulses(cpu(), words.view());
  State state;
  array.saveTo(cpu(), state, "device/");
  PulsedDevice copy(cpu(), device, kRows, kCols, kKey);
  copy.loadFrom(cpu(), state, "device/");
  EXPECT_EQ(visibleWeights(copy), visibleWeights(array));
  for (PulsedDevice *each : {&array, &copy}) {
    each->relax(cpu(), 1);
    each->applyPulses(cpu(), words.view());
    each->resetColumns(cpu(), 3, 20, 0.5f, 1);
  }
  EXPECT_EQ(visibleWeights(copy), visibleWeights(array));
  EXPECT_EQ(storedWeights(copy), storedWeights(array));
  EXPECT_EQ(storedCells(copy), storedCells(array));
  EXPECT_EQ(copy.pulseCount(cpu()), array.pulseCount(cpu()));
}

/// The response of 21 cells to 400 pulses up and 400 down with all noise, as a hash of every weight on the way.
uint64_t responseHash(const DeviceParams &params) {
  PulsedDevice array(cpu(), params, 3, 7, kKey);
  FnvHash hash;
  for (uint64_t s = 0; s < 200; ++s) {
    array.applyPulses(cpu(), TestWords::all(3, 7, 1, 4, s < 100, s).view());
    for (const float w : storedWeights(array)) hash.add(w);
  }
  return hash.value();
}

/// Whether PULSORA_EXTRA_DEVICES, "Name=/path.h:Name=/path.h", brought the model in.
bool isFromOutside(const std::string &model) {
  return (std::string(":") + PULSORA_EXTRA_DEVICES).find(":" + model + "=") != std::string::npos;
}

// Golden values change only with a decision to change the physics or the contract of random numbers. Then:
//   PULSORA_WRITE_GOLDEN=1 rpucuda_tests --gtest_filter='*GoldenResponse*'
TEST_P(DeviceContract, GoldenResponse) {
  const std::string path = std::string(PULSORA_GOLDEN_DIR) + "/device_responses.txt";
  std::map<std::string, std::string> golden;
  std::ifstream file(path);
  for (std::string name, hash; file >> name >> hash;) golden[name] = hash;
  std::ostringstream hash;
  hash << std::hex << responseHash(params());
  if (std::getenv("PULSORA_WRITE_GOLDEN")) {
    golden[GetParam()] = hash.str();
    std::ofstream out(path);
    for (const auto &[name, value] : golden) out << name << ' ' << value << '\n';
    ASSERT_TRUE(out.flush()) << "cannot write " << path;
    return;
  }
  if (!golden.count(GetParam()) && isFromOutside(GetParam())) GTEST_SKIP() << "golden values are kept for models of this tree";
  ASSERT_TRUE(golden.count(GetParam())) << path << " has no entry for this model; see how to write one above this test";
  EXPECT_EQ(golden[GetParam()], hash.str());
}

// --- what happens to cells besides pulses -------------------------------------------------------------------------------

TEST_P(DeviceContract, WriteNoiseHidesTheStoredWeightAndIsDrawnAnew) {
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
  PulsedDevice quiet(cpu(), params({{"write_noise_std", 5.0}, {"apply_write_noise_on_set", false}}), 100, 100, kKey);
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

TEST_P(DeviceContract, Property33_DecayPullsTowardsTheResetValue) {
  for (double lifetime : {40.0, 0.5}) {
    PulsedDevice array(cpu(), makeParams(GetParam(), wide({{"lifetime", lifetime}, {"reset", 0.1}})), 6, 70, kKey);
    fillWeights(array, startWeight);
    const std::vector<float> start = storedWeights(array);
    for (uint64_t batch = 0; batch < 10; ++batch) array.relax(cpu(), batch);
    array.relax(cpu(), 10, 0.25f);
    const std::vector<float> end = storedWeights(array);
    const double keep = lifetime > 1.0 ? 1.0 - 1.0 / lifetime : 0.0;
    const double factor = std::pow(keep, 10) * (1.0 - 0.25 * (1.0 - keep));
    for (size_t i = 0; i < end.size(); ++i) {
      EXPECT_NEAR(end[i], 0.1 + (static_cast<double>(start[i]) - 0.1) * factor, 1e-6);
    }
  }
}

TEST_P(DeviceContract, Property33_LifetimesSpreadAsAsked) {
  // 1e4 cells; lifetime 40 (1 +- 0.05), so that 1/lifetime has neither a heavy tail nor a limit within reach.
  PulsedDevice array(cpu(), makeParams(GetParam(), wide({{"lifetime", 40.0}, {"lifetime_dtod", 0.05}})), 100, 100, kKey);
  fillWeights(array, [](int64_t) { return 1.0f; });
  array.relax(cpu(), 0);
  std::vector<float> lifetimes = storedWeights(array);
  for (float &w : lifetimes) w = 1.0f / (1.0f - w);
  expectNormal(lifetimes, 40.0, 2.0);
}

TEST_P(DeviceContract, Property33_DiffusionVarianceGrowsLinearly) {
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

TEST_P(DeviceContract, Property33_ResetDrawsAroundTheResetValueOfEachCell) {
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
}  // namespace RPU::testing
