#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <tuple>
#include <vector>

#include "core/batched_launches.h"
#include "core/cuda_api.h"
#include "cuda/cuda_test_util.h"

// Repeated reads whose product is in integers, on the GPU: arrays too large for a read in one
// launch, whose rows are read again by the whole grid.

namespace pulsora {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

struct Shape {
  int64_t rows, cols, samples;
};

// The second array fills blocks of 128 x 128 sums. In the third, sums of 32 bits hold only a part
// of the inputs. Weights of the last are not copied by four.
const std::vector<Shape> kShapes = {
    {1300, 900, 40}, {6200, 72, 300}, {37, 20000, 20}, {1301, 903, 67}};

const std::vector<std::vector<Shape>> kGroups = {
    {{1300, 900, 40}, {1300, 900, 40}, {1300, 900, 40}},
    {{1300, 900, 40}, {1301, 903, 67}, {70, 4000, 64}},
    {{6200, 72, 300}, {6200, 72, 300}}};

/// How the integers are made.
struct Setting {
  int weightBits;
  float inputStep;
  float weightNoise;
};
const std::vector<Setting> kSettings = {{24, 1.0f / 126.0f, 0.0f},
                                        {16, 1.0f / 126.0f, 0.0f},
                                        {24, 1.0f / 20000.0f, 0.0f},
                                        {16, 1.0f / 20000.0f, 0.0f},
                                        {24, 1.0f / 126.0f, 0.05f}};

/// A tile whose ADCs take sums of up to `width` times the root of the number of inputs.
TileConfig narrowConfig(const Shape &shape, const Setting &setting, float width) {
  TileConfig config = singleConfig();
  config.forward.out_bound = width * std::sqrt(static_cast<float>(shape.cols));
  config.backward.out_bound = width * std::sqrt(static_cast<float>(shape.rows));
  for (IOParameters *io : {&config.forward, &config.backward}) {
    io->weight_bits = setting.weightBits;
    io->inp_res = setting.inputStep;
    io->w_noise = setting.weightNoise;
    io->w_noise_type = WeightNoiseType::AdditiveConstant;
    io->bm_backward = true;
  }
  return config;
}

/// Results of reads, and how many rows were read again in either direction.
struct Reads {
  std::vector<std::vector<float>> results;
  std::vector<int64_t> repeats;
};

std::vector<int64_t> repeatsOf(const Tile &tile) {
  std::vector<int64_t> repeats;
  const Value::Map counts = tile.hardwareCounts();
  for (const Value &read : *counts.at("reads").list())
    repeats.push_back(*read.map()->at("repeats").integer());
  return repeats;
}

/// Reads by tiles of these shapes, alone or with their launches merged.
Reads readAll(const Context &context, const std::vector<Shape> &shapes, const Setting &setting,
              float width, bool merged) {
  std::vector<Tile> tiles;
  std::vector<DeviceBatch> batches;
  std::vector<DeviceMatrix> y, dx;
  for (const Shape &shape : shapes) {
    const uint64_t seed = 4 + 2 * tiles.size();
    tiles.emplace_back(shape.rows, shape.cols, narrowConfig(shape, setting, width), 5, 2, context);
    const Batch weights = randomBatch(shape.rows, shape.cols, 1, seed);
    tiles.back().setWeights(DeviceMatrix(context, weights.xView()).view());
    batches.emplace_back(context, randomBatch(shape.samples, shape.cols, shape.rows, seed + 1));
    y.emplace_back(context, shape.samples, shape.rows);
    dx.emplace_back(context, shape.samples, shape.cols);
  }
  const auto forward = [&](size_t i) { tiles[i].forward(batches[i].x.view(), y[i].view()); };
  const auto backward = [&](size_t i) { tiles[i].backward(batches[i].d.view(), dx[i].view()); };
  BatchedLaunches joined;
  for (int n = 0; n < 2; ++n) {  // twice: nothing is left behind in scratch memory
    if (merged) {
      joined.run(tiles.size(), forward);
      joined.run(tiles.size(), backward);
      continue;
    }
    for (size_t i = 0; i < tiles.size(); ++i) forward(i);
    for (size_t i = 0; i < tiles.size(); ++i) backward(i);
  }
  Reads reads;
  for (size_t i = 0; i < tiles.size(); ++i) {
    reads.results.push_back(y[i].host(context));
    reads.results.push_back(dx[i].host(context));
    for (const int64_t each : repeatsOf(tiles[i])) reads.repeats.push_back(each);
  }
  return reads;
}

void expectSame(const Reads &first, const Reads &second) {
  EXPECT_EQ(first.repeats, second.repeats);
  for (size_t r = 0; r < first.results.size(); ++r)
    ASSERT_TRUE(sameBits(first.results[r], second.results[r])) << "result " << r;
}

/// Lets kernels have the shared memory of compute capability 7.5, during its lifetime.
struct SmallerGpu {
  SmallerGpu() { limitSharedBytes(64 * 1024); }
  ~SmallerGpu() { limitSharedBytes(0); }
  SmallerGpu(const SmallerGpu &) = delete;
  SmallerGpu &operator=(const SmallerGpu &) = delete;
};

// With the narrow range all rows are read again, most of them several times; with the wide one few.
constexpr float kNarrow = 0.1f;
constexpr float kWide = 0.8f;
const std::vector<float> kWidths = {kNarrow, 0.45f, kWide};

/// Tests for each shape, or group of shapes, and setting, so that slow checkers can run a few.
class CudaRepeatedReads : public ::testing::TestWithParam<std::tuple<size_t, size_t>> {};
class CudaRepeatedReadsTogether : public CudaRepeatedReads {};

TEST_P(CudaRepeatedReads, Property36_HaveTheBitsOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  const Shape &shape = kShapes[std::get<0>(GetParam())];
  const Setting &setting = kSettings[std::get<1>(GetParam())];
  for (const float width : kWidths) {
    SCOPED_TRACE(message("width ", width));
    const Reads cpu = readAll(cpuContext(), {shape}, setting, width, false);
    expectSame(cpu, readAll(gpuContext(), {shape}, setting, width, false));
    if (width == kNarrow) {
      const SmallerGpu smaller;
      expectSame(cpu, readAll(gpuContext(), {shape}, setting, width, false));
    }
    const int64_t samples = 2 * shape.samples;  // of two reads
    for (const int64_t repeats : cpu.repeats) {
      if (width == kNarrow) {
        EXPECT_GE(repeats, samples);
      } else if (width == kWide) {
        EXPECT_LT(repeats, samples);
      }
    }
  }
}

TEST_P(CudaRepeatedReadsTogether, Property36_OfSeveralArraysInOneLaunchHaveTheBitsOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  const std::vector<Shape> &shapes = kGroups[std::get<0>(GetParam())];
  const Setting &setting = kSettings[std::get<1>(GetParam())];
  for (const float width : kWidths) {
    SCOPED_TRACE(message("width ", width));
    expectSame(readAll(cpuContext(), shapes, setting, width, false),
               readAll(gpuContext(), shapes, setting, width, true));
  }
}

std::string nameOfCase(const ::testing::TestParamInfo<std::tuple<size_t, size_t>> &info) {
  return message("shapes", std::get<0>(info.param), "setting", std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Cases, CudaRepeatedReads,
                         ::testing::Combine(::testing::Range(size_t{0}, kShapes.size()),
                                            ::testing::Range(size_t{0}, kSettings.size())),
                         nameOfCase);
INSTANTIATE_TEST_SUITE_P(Cases, CudaRepeatedReadsTogether,
                         ::testing::Combine(::testing::Range(size_t{0}, kGroups.size()),
                                            ::testing::Values(0u, 2u, 4u)),
                         nameOfCase);

}  // namespace
}  // namespace pulsora
