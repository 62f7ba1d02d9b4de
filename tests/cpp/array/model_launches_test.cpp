#include "cuda/array/model_launches.h"

#include <gtest/gtest.h>
#include <vector>

#include "devices/constant_step.h"
#include "devices/soft_bounds.h"

// Which kernels of a model are launched, and with which grid, without a GPU.

namespace pulsora {
namespace {

using gpu::ModelKernel;

struct Launch {
  ModelKernel kernel;
  unsigned blocks;
  unsigned threads;
};

struct Recorder {
  static inline std::vector<Launch> launches;
  static inline size_t cleared = 0;

  template <ModelKernel kernel, class... Arguments>
  static void launch(void *, unsigned blocks, unsigned threads, const Arguments &...) {
    launches.push_back({kernel, blocks, threads});
  }
  static void clear(void *, size_t bytes, void *) { cleared += bytes; }
  static bool multipliesBits() { return true; }
};

struct ModelLaunchesTest : ::testing::Test {
  ConstantStep::Params params;
  PulseWords words;
  uint32_t deferred = 0;

  void SetUp() override {
    Recorder::launches.clear();
    Recorder::cleared = 0;
  }
  CellArray array(int64_t rows, int64_t cols) {
    CellArray made{};
    made.rows = rows;
    made.cols = cols;
    made.params = &params;
    made.deferred = &deferred;
    return made;
  }
  template <class Device>
  void update(int64_t rows, int64_t cols) {
    gpu::ModelLaunches<Device, Recorder>::kTable.update(array(rows, cols), words, nullptr, 0, 0,
                                                        nullptr);
  }
  std::vector<ModelKernel> kernels() const {
    std::vector<ModelKernel> list;
    list.reserve(Recorder::launches.size());
    for (const Launch &launch : Recorder::launches) list.push_back(launch.kernel);
    return list;
  }
};

TEST_F(ModelLaunchesTest, ArraysAreUpdatedTogether) {
  const PulsedUpdate each{array(40, 33), words, nullptr};
  const std::vector<PulsedUpdate> updates(kMostTogether, each);
  const auto &table = gpu::ModelLaunches<ConstantStep, Recorder>::kTable;
  for (int count = 1; count <= 4; ++count) table.updateTogether(updates.data(), count, nullptr);
  EXPECT_EQ(kernels(), (std::vector{ModelKernel::UpdateOne, ModelKernel::UpdateTwo,
                                    ModelKernel::UpdateMost, ModelKernel::UpdateMost}));
  for (size_t i = 0; i < 4; ++i) {  // ten rows of blocks by two, each of four rows and 32 columns
    EXPECT_EQ(Recorder::launches[i].blocks, 20 * (i + 1));
    EXPECT_EQ(Recorder::launches[i].threads, 128u);
  }
}

TEST_F(ModelLaunchesTest, MoreArraysThanALaunchTakesGoIntoSeveral) {
  const std::vector<PulsedUpdate> updates(2 * kMostTogether + 1, {array(40, 33), words, nullptr});
  gpu::ModelLaunches<ConstantStep, Recorder>::kTable.updateTogether(
      updates.data(), static_cast<int>(updates.size()), nullptr);
  EXPECT_EQ(kernels(), (std::vector{ModelKernel::UpdateMost, ModelKernel::UpdateMost,
                                    ModelKernel::UpdateOne}));
  EXPECT_EQ(Recorder::launches[1].blocks, 20u * kMostTogether);
  EXPECT_EQ(Recorder::launches[2].blocks, 20u);
}

TEST_F(ModelLaunchesTest, NarrowArraysAreFlat) {
  update<ConstantStep>(1000, 9);
  ASSERT_EQ(Recorder::launches.size(), 1u);
  EXPECT_EQ(Recorder::launches[0].blocks, 71u);  // of 128 cells
}

TEST_F(ModelLaunchesTest, NoiseIsMergedWhereTheModelCan) {
  params.noise_merge = NoiseMerge::Batch;
  update<ConstantStep>(64, 64);
  EXPECT_EQ(kernels(), (std::vector{ModelKernel::MergeRows, ModelKernel::Deferred}));
  EXPECT_EQ(Recorder::launches[0].blocks, 32u);
  EXPECT_EQ(Recorder::cleared, sizeof(uint32_t));
  SetUp();
  update<ConstantStep>(1024, 1030);
  EXPECT_EQ(kernels(), (std::vector{ModelKernel::MergeTiles, ModelKernel::Deferred}));
  EXPECT_EQ(Recorder::launches[0].blocks, 16u * 33u);
  EXPECT_EQ(Recorder::launches[1].blocks, 528u);  // at most
  SetUp();
  words.kind = PulseKind::MeanCount;  // which has no bits to multiply
  update<ConstantStep>(1024, 1030);
  EXPECT_EQ(kernels()[0], ModelKernel::MergeRows);
}

TEST_F(ModelLaunchesTest, CellsAreTreatedInPartsOfAnArray) {
  const auto &table = gpu::ModelLaunches<ConstantStep, Recorder>::kTable;
  const CellArray a = array(100, 100);
  table.relax(a, {}, 5, 5, nullptr);  // none
  EXPECT_TRUE(Recorder::launches.empty());
  table.relax(a, {}, 0, 257, nullptr);
  table.reset(a, {}, 0, 256, nullptr);
  table.write(a, {}, 0, 1, nullptr);
  table.describe(a, nullptr, nullptr, 0, 10000, nullptr);
  table.balance(a, 0, nullptr, 0, 10000, nullptr);
  table.construct(a, nullptr, 0, 10000, nullptr);
  EXPECT_EQ(kernels(),
            (std::vector{ModelKernel::Relax, ModelKernel::Reset, ModelKernel::Write,
                         ModelKernel::Describe, ModelKernel::Balance, ModelKernel::Construct}));
  EXPECT_EQ(Recorder::launches[0].blocks, 2u);
  EXPECT_EQ(Recorder::launches[1].blocks, 1u);
}

TEST(ModelLaunches, OfAModelWhoseStepDependsOnTheWeight) {
  Recorder::launches.clear();
  SoftBounds::Params params;
  CellArray array{};
  array.rows = array.cols = 2048;
  array.params = &params;
  gpu::ModelLaunches<SoftBounds, Recorder>::kTable.update(array, {}, nullptr, 0, 0, nullptr);
  ASSERT_EQ(Recorder::launches.size(), 1u);
  EXPECT_EQ(Recorder::launches[0].kernel, ModelKernel::UpdateOne);
  EXPECT_EQ(Recorder::launches[0].blocks, 64u * 64u);  // a warp takes eight rows
}

TEST(ModelLaunches, NoiseOfStepsThatDependOnTheWeightIsMergedCellByCell) {
  Recorder::launches.clear();
  SoftBounds::Params params;
  params.noise_merge = NoiseMerge::Batch;
  uint32_t deferred = 0;
  CellArray array{};
  array.rows = array.cols = 2048;
  array.params = &params;
  array.deferred = &deferred;
  gpu::ModelLaunches<SoftBounds, Recorder>::kTable.update(array, {}, nullptr, 0, 0, nullptr);
  ASSERT_EQ(Recorder::launches.size(), 2u);
  EXPECT_EQ(Recorder::launches[0].kernel, ModelKernel::MergeRows);
  EXPECT_EQ(Recorder::launches[0].blocks, 64u * 64u);  // a warp takes eight rows
  EXPECT_EQ(Recorder::launches[1].kernel, ModelKernel::Deferred);
}

}  // namespace
}  // namespace pulsora
