// Effects of pulses on the cells of every device model.

#include <cmath>
#include <cstdlib>
#include <fstream>

#include "array/device_contract.h"
#include "util/fnv_hash.h"

namespace pulsora::testing {
namespace {

class DeviceUpdates : public DeviceContract {};
INSTANTIATE_TEST_SUITE_P(Models, DeviceUpdates, ::testing::ValuesIn(modelNames()), testName);

constexpr int64_t kRows = 19;
constexpr int64_t kCols = 151;
constexpr uint64_t kFirstSample = 1021;  // not a multiple of 8, so that blocks of normals are cut

std::vector<float> updated(const DeviceParams &params,
                           const std::vector<const TestWords *> &batches, const Context &context,
                           int64_t rows = kRows, int64_t cols = kCols) {
  PulsedDevice array(context, params, rows, cols, kKey);
  fillWeights(array, startWeight);
  for (const TestWords *batch : batches) array.applyPulses(context, batch->view());
  return storedWeights(array);
}

std::vector<float> expected(const TypedModel &model, const DeviceParams &params,
                            const std::vector<const TestWords *> &batches, int64_t rows = kRows,
                            int64_t cols = kCols) {
  PulsedDevice array(cpu(), params, rows, cols, kKey);
  fillWeights(array, startWeight);
  return model.reference(params, array, batches);
}

TEST_P(DeviceUpdates, Property36_EveryKernelReproducesTheRuleToTheBit) {
  for (const char *noise : {"closed_form", "sequential"}) {
    const DeviceParams device =
        params({{"pulse_noise", noise}, {"corrupt_devices_prob", 0.05}, {"dw_min", 0.004}});
    for (int slots : {1, 3, 8, 31, 40}) {
      const TestWords words = TestWords::random(kRows, kCols, 13, slots, 99, kFirstSample);
      const std::vector<float> rule = expected(typed(), device, {&words});
      for (Isa isa : supportedIsas()) {
        EXPECT_TRUE(sameBits(updated(device, {&words}, cpu(1, isa)), rule))
            << isaName(isa) << ", " << slots << " slots, " << noise;
      }
    }
  }
}

TEST_P(DeviceUpdates, Property36_OtherPulseKindsAndNarrowArraysToo) {
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

TEST_P(DeviceUpdates, Property36_PulsesOneWayToo) {
  const DeviceParams device = params({{"dw_min", 0.004}});
  for (const PulseWay way : {PulseWay::Up, PulseWay::DownAsUp}) {
    for (const PulseKind kind :
         {PulseKind::Words, PulseKind::TwoPass, PulseKind::MeanCount, PulseKind::Implicit}) {
      for (const int slots : {1, 3, 8, 40}) {
        for (const auto &[rows, cols] : {std::pair{11, 7}, std::pair{3, 151}}) {
          TestWords words = TestWords::random(rows, cols, 13, slots, 5, kFirstSample);
          words.as(kind, 5).taken(way);
          const std::vector<float> rule = expected(typed(), device, {&words}, rows, cols);
          for (const Isa isa : supportedIsas()) {
            EXPECT_TRUE(sameBits(updated(device, {&words}, cpu(1, isa), rows, cols), rule))
                << isaName(isa) << ", " << slots << " slots, kind " << static_cast<int>(kind);
          }
        }
      }
    }
  }
}

// The two ways share the coincidences: each is taken once, and none steps down.
TEST_P(DeviceUpdates, TheTwoWaysShareTheCoincidences) {
  const DeviceParams device = params({{"dw_min", 0.004}});
  const auto counted = [&](PulseWay way) {
    PulsedDevice array(cpu(), device, kRows, kCols, kKey);
    TestWords words = TestWords::random(kRows, kCols, 13, 3, 99, kFirstSample);
    array.applyPulses(cpu(), words.taken(way).view());
    return array.pulseCount(cpu());
  };
  EXPECT_GT(counted(PulseWay::Up), 0U);
  EXPECT_GT(counted(PulseWay::DownAsUp), 0U);
  EXPECT_EQ(counted(PulseWay::Up) + counted(PulseWay::DownAsUp), counted(PulseWay::Both));
}

TEST_P(DeviceUpdates, Property37_SplitBatchesAndThreadsChangeNothing) {
  const DeviceParams device = params({{"dw_min", 0.004}});
  for (int slots : {1, 3, 8, 31, 40}) {
    const auto batch = [&](int64_t begin, int64_t end) {
      return TestWords::random(kRows, kCols, end - begin, slots, 99,
                               kFirstSample + static_cast<uint64_t>(begin), 2);
    };
    const TestWords whole = batch(0, 13);
    const std::vector<float> expectedWeights = updated(device, {&whole}, cpu());
    for (int threads : {2, 3})
      EXPECT_TRUE(sameBits(updated(device, {&whole}, cpu(threads)), expectedWeights));
    for (int64_t cut : {1, 5, 12}) {
      const TestWords first = batch(0, cut);
      const TestWords second = batch(cut, 13);
      EXPECT_TRUE(sameBits(updated(device, {&first, &second}, cpu()), expectedWeights))
          << slots << " slots, cut at " << cut;
    }
  }
}

TEST_P(DeviceUpdates, Property40_TheLedgerCountsEveryCoincidence) {
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

TEST_P(DeviceUpdates, Property38_AStateGoesOnAsIfNeverStopped) {
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

/// The response of 21 cells to 400 pulses up and 400 down with all noise, as a hash of every weight
/// on the way.
uint64_t responseHash(const DeviceParams &params) {
  PulsedDevice array(cpu(), params, 3, 7, kKey);
  FnvHash hash;
  for (uint64_t s = 0; s < 200; ++s) {
    array.applyPulses(cpu(), TestWords::all(3, 7, 1, 4, s < 100, s).view());
    for (const float w : storedWeights(array)) hash.add(w);
  }
  return hash.value();
}

// Golden values change only with a decision to change the physics or the contract of random
// numbers. Then:
//   PULSORA_WRITE_GOLDEN=1 rpucuda_tests --gtest_filter='*GoldenResponse*'
TEST_P(DeviceUpdates, GoldenResponse) {
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
  if (!golden.count(GetParam()) && isFromOutside(GetParam()))
    GTEST_SKIP() << "golden values are kept for models of this tree";
  ASSERT_TRUE(golden.count(GetParam()))
      << path << " has no entry for this model; see how to write one above this test";
  EXPECT_EQ(golden[GetParam()], hash.str());
}

}  // namespace
}  // namespace pulsora::testing
