#include <algorithm>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include "cuda/cuda_test_util.h"
#include "tile/tile.h"
#include "tile/tile_test_util.h"

// Inputs that are not finite, on a GPU: until somebody is told, updates change nothing that is
// stored, and nothing moves between arrays.

namespace pulsora::testing {
namespace {

constexpr int64_t kSamples = 6;

/// A chain of arrays with everything that cells can do; `extra` has its other settings.
struct Chain {
  const char *name;
  Value::Map extra;
};

std::vector<Chain> chains() {
  const Value samples(false);
  const Value one(Value::List{Value(Value::Map{{"model", "SoftBounds"}, {"lifetime", 50.0}})});
  return {
      {"every mini-batch", {{"transfer_every", 1}}},
      {"with resets", {{"transfer_every", 1}, {"with_reset_prob", 1.0}}},
      {"with resets, between samples",
       {{"transfer_every", 2}, {"with_reset_prob", 1.0}, {"units_in_mbatch", samples}}},
      {"written digitally",
       {{"transfer_every", 1},
        {"transfer_update", Value::Map{{"pulse_type", "none_with_device"}}}}},
      {"automatic scales",
       {{"fast", one},
        {"transfer_every", 1},
        {"units_in_mbatch", samples},
        {"buffer", "chopped"},
        {"in_chop_prob", 0.4},
        {"out_chop_prob", 0.4},
        {"auto_scale", true},
        {"correct_gradient_magnitudes", true}}},
  };
}

/// Whether all tensors of two states are equal, but for snapshots, which each mini-batch takes, and
/// the numbers of pulses and of clipped steps.
::testing::AssertionResult sameStored(State a, State b) {
  for (State *state : {&a, &b}) {
    for (const char *array : {"fast_a", "fast_b"})
      state->tensors.erase(std::string(array) + "/snapshot");
    for (auto it = state->values.begin(); it != state->values.end();) {
      const std::string end = it->first.substr(it->first.rfind('/') + 1);
      const bool counts = end == "pulses" || end == "pulse_slots" || end == "clipped";
      it = counts ? std::next(it) : state->values.erase(it);
    }
  }
  return sameState(a, b);
}

void expectRefusalsChangeNothing(const TileConfig &config) {
  const Context gpu = gpuContext();
  const auto update = [&](Tile &tile, uint64_t seed, float bad, bool inX) {
    Batch batch = randomBatch(kSamples, kCourseCols, kCourseRows, seed);
    if (bad != 0.0f) (inX ? batch.x : batch.d)[5] = bad;
    const DeviceBatch on(gpu, batch);
    tile.update(on.x.view(), on.d.view(), 0.1f);
  };
  Tile tile(kCourseRows, kCourseCols, config, 5, 2, gpu);
  uint64_t seed = 0;
  for (const float bad : {std::numeric_limits<float>::infinity(), kNaN}) {
    for (const bool inX : {false, true}) {
      for (int step = 0; step < 20; ++step) update(tile, seed++, 0.0f, false);
      const State before = tile.state();
      update(tile, seed++, bad, inX);
      for (int step = 0; step < 8; ++step) update(tile, seed++, 0.0f, false);
      EXPECT_THROW(tile.state(), InputError);
      EXPECT_TRUE(sameStored(before, tile.state()));
      for (int step = 0; step < 8; ++step) update(tile, seed++, 0.0f, false);
      EXPECT_FALSE(sameStored(before, tile.state()));
    }
  }
}

TEST(CudaTile, Property07_RefusedInputsMoveNothingBetweenArrays) {
  PULSORA_REQUIRE_GPU();
  for (const Chain &chain : chains()) {
    SCOPED_TRACE(chain.name);
    expectRefusalsChangeNothing(configOf("transfer", chain.extra));
    if (HasFailure()) return;
  }
}

std::vector<std::string> kindsWithoutAdapter() {
  std::vector<std::string> found = kinds();
  found.erase(std::remove_if(
                  found.begin(), found.end(),
                  [](const std::string &kind) { return kind.find("lrtt") != std::string::npos; }),
              found.end());
  return found;
}

class CudaTileOfKind : public ::testing::TestWithParam<std::string> {};

// Transfers of kinds with an adapter take place in any case.
INSTANTIATE_TEST_SUITE_P(Kinds, CudaTileOfKind, ::testing::ValuesIn(kindsWithoutAdapter()),
                         [](const auto &kind) { return kind.param; });

TEST_P(CudaTileOfKind, Property07_RefusedInputsChangeNothing) {
  PULSORA_REQUIRE_GPU();
  expectRefusalsChangeNothing(configOf(GetParam()));
}

TEST(CudaTile, Property07_RefusedInputsKeepAccumulatedUpdates) {
  PULSORA_REQUIRE_GPU();
  const Context gpu = gpuContext();
  const TileConfig config = lrttConfig([](Parts &c) {
    c.lrtt.transfer_every = 0;
    c.lrtt.ab_update = FactorUpdate::Accumulated;
  });
  Tile tile(kCourseRows, kCourseCols, config, 5, 2, gpu);
  Batch batch = randomBatch(kSamples, kCourseCols, kCourseRows, 1);
  const DeviceBatch good(gpu, batch);
  tile.update(good.x.view(), good.d.view(), 0.1f, BatchEnd::Later);
  const State before = tile.state();
  batch.x[5] = kNaN;
  const DeviceBatch bad(gpu, batch);
  tile.update(bad.x.view(), bad.d.view(), 0.1f);
  EXPECT_THROW(tile.state(), InputError);
  EXPECT_TRUE(sameStored(before, tile.state()));
  tile.endBatch(0.1f);
  EXPECT_FALSE(sameStored(before, tile.state()));
}

}  // namespace
}  // namespace pulsora::testing
