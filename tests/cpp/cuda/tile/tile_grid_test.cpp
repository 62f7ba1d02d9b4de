#include "tile/tile_grid.h"

#include <gtest/gtest.h>
#include <vector>

#include "cuda/cuda_test_util.h"

// A matrix on several tiles of the GPU beside the same on the CPU.

namespace RPU {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

constexpr int64_t kBatch = 33, kOutputs = 45, kInputs = 70;
constexpr int64_t kRowEnds[] = {0, 20, 45}, kColEnds[] = {0, 24, 47, 70};

/// Reads and states after some mini-batches, as numbers in host memory.
Course trainGrid(const Context &context, const TileConfig &config) {
  std::vector<Tile> tiles;
  std::vector<PlacedTile> placed;
  tiles.reserve(6);
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      tiles.emplace_back(kRowEnds[i + 1] - kRowEnds[i], kColEnds[j + 1] - kColEnds[j], config, 5,
                         static_cast<uint32_t>(tiles.size()), context);
      placed.push_back({&tiles.back(), kRowEnds[i], kColEnds[j]});
    }
  }
  TileGrid grid(placed, kOutputs, kInputs);
  Course course;
  for (uint64_t n = 0; n < 4; ++n) {
    const Batch batch = trainingBatch(kBatch, kInputs, kOutputs, n % 2 == 0, 60 + n);
    const DeviceBatch given(context, batch);
    DeviceMatrix y(context, kBatch, kOutputs), dx(context, kBatch, kInputs);
    grid.forward(given.x.view(), y.view());
    grid.backward(given.d.view(), dx.view());
    grid.update(given.x.view(), given.d.view(), 0.1f);
    grid.postUpdate(0.1f);
    course.results.push_back(y.host(context));
    course.results.push_back(dx.host(context));
  }
  for (Tile &tile : tiles) {
    Buffer<float> weights(context, tile.dSize() * tile.xSize());
    tile.getWeights(rowMajor(weights.data(), tile.dSize(), tile.xSize()));
    std::vector<float> host(static_cast<size_t>(weights.size()));
    detail::copyToHost(context, host.data(), weights.data(), weights.bytes());
    course.results.push_back(host);
  }
  course.state = tiles.back().state();
  return course;
}

TEST(CudaTileGrid, Property36_HasTheBitsOfTheCpu) {
  RPU_REQUIRE_GPU();
  for (const TileConfig &config : {singleConfig(), lrttConfig(), idealConfig()}) {
    const Course cpu = trainGrid(cpuContext(), config);
    const Course gpu = trainGrid(reproducibleGpu(), config);
    for (size_t i = 0; i < cpu.results.size(); ++i)
      ASSERT_TRUE(sameBits(cpu.results[i], gpu.results[i])) << "result " << i;
    EXPECT_TRUE(sameState(cpu.state, gpu.state));
  }
}

}  // namespace
}  // namespace RPU
