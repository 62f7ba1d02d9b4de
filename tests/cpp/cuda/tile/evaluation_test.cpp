#include <gtest/gtest.h>
#include <vector>

#include "cuda/cuda_test_util.h"
#include "tile/tile_grid.h"

// Reads of evaluations, new seeds and other peripheries on a GPU have the bits of the CPU.

namespace pulsora {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

constexpr BatchPart kEvaluation{0, -1, true};

struct Result {
  std::vector<std::vector<float>> reads;
  std::vector<State> states;
};

/// Training steps with evaluations by a grid of two tiles between them, then a new seed, new cells,
/// and another periphery.
Result evaluated(const Context &context, const TileConfig &config) {
  constexpr int64_t kIn = 70, kOut = 45;
  std::vector<Tile> tiles;
  tiles.reserve(2);
  for (uint32_t id = 0; id < 2; ++id) tiles.emplace_back(kOut, kIn, config, 5, id, context);
  TileGrid grid({{&tiles[0], 0, 0}, {&tiles[1], kOut, 0}}, 2 * kOut, kIn);
  Result result;
  const auto step = [&](TileGrid &all, uint64_t n) {
    const Batch batch = trainingBatch(16, kIn, 2 * kOut, n % 2 == 0, n);
    const DeviceBatch on(context, batch);
    DeviceMatrix y(context, batch.samples, 2 * kOut), dx(context, batch.samples, kIn);
    for (const BatchPart part : {kEvaluation, kEvaluation, BatchPart{}}) {
      all.forward(on.x.view(), y.view(), part);
      all.backward(on.d.view(), dx.view(), part);
      result.reads.push_back(y.host(context));
      result.reads.push_back(dx.host(context));
    }
    all.update(on.x.view(), on.d.view(), 0.05f);
  };
  for (uint64_t n = 0; n < 3; ++n) step(grid, n);
  tiles[0].reseed(91);
  step(grid, 3);
  tiles[1].reseed(92, true);
  step(grid, 4);
  TilePeriphery around = tiles[0].config();
  around.forward.out_noise = 0.2f;
  Tile noisy = tiles[0].withPeriphery(around);
  const Batch batch = randomBatch(9, kIn, kOut, 3);
  const DeviceBatch on(context, batch);
  DeviceMatrix y(context, 9, kOut);
  noisy.forward(on.x.view(), y.view(), kEvaluation);
  result.reads.push_back(y.host(context));
  for (const Tile &tile : tiles) result.states.push_back(tile.state());
  result.states.push_back(noisy.state());
  return result;
}

void expectSame(const TileConfig &config) {
  const Result cpu = evaluated(cpuContext(), config);
  const Result gpu = evaluated(reproducibleGpu(), config);
  for (size_t i = 0; i < cpu.reads.size(); ++i)
    ASSERT_TRUE(sameBits(cpu.reads[i], gpu.reads[i])) << "read " << i;
  for (size_t i = 0; i < cpu.states.size(); ++i)
    ASSERT_TRUE(sameState(cpu.states[i], gpu.states[i])) << "state " << i;
}

TEST(CudaEvaluation, Property36_HasTheBitsOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  expectSame(idealConfig());
  expectSame(singleConfig());
  expectSame(lrttConfig());
  expectSame(singleConfig([](Parts &parts) {
    parts.forward.noise_management = NoiseManagement::AverageAbsMax;
    parts.backward.noise_management = NoiseManagement::AverageAbsMax;
  }));
}

}  // namespace
}  // namespace pulsora
