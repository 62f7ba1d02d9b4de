#include <algorithm>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <vector>

#include "array/events.h"
#include "numerics/random.h"
#include "tile/tile_grid.h"
#include "tile/tile_test_util.h"
#include "util/state_test_util.h"

// Reads of evaluations, new seeds, and tiles with another periphery.

namespace pulsora::testing {
namespace {

constexpr BatchPart kEvaluation{0, -1, true};

Numbers evaluate(Tile &tile, int64_t samples = 6) {
  const Batch b = randomBatch(samples, kCols, kRows, 5);
  Numbers y(static_cast<size_t>(samples * kRows));
  tile.forward(b.xView(), rowMajor(y.data(), samples, kRows), kEvaluation);
  return y;
}

TEST(Evaluation, Property39_StatesOfATrainingHaveNumbersApartFromItsOwn) {
  constexpr uint64_t kLast = 2 * kMostCounted;  // samples read and updated by
  for (const uint64_t trained : {uint64_t{0}, uint64_t{1}, uint64_t{1000}, kLast}) {
    EXPECT_GE(evaluationSample(trained, 0), kMostCounted);
    EXPECT_LE(evaluationSample(trained, kMostCounted), kMaxSample);
    EXPECT_EQ(evaluationSample(trained, 0) % 8, 0u);
    EXPECT_TRUE(isEvaluation(evaluationSample(trained, 0)));
  }
  EXPECT_FALSE(isEvaluation(kMostCounted));
  // 2^20 states in a row are at least 2^24 samples apart.
  std::set<uint64_t> starts;
  for (uint64_t trained = 0; trained < (1U << 20); ++trained)
    starts.insert(evaluationSample(7777 + trained, 0));
  uint64_t nearest = kMaxSample;
  for (auto next = starts.begin(), last = next++; next != starts.end(); last = next++)
    nearest = std::min(nearest, *next - *last);
  EXPECT_EQ(starts.size(), size_t{1} << 20);
  EXPECT_GE(nearest, uint64_t{1} << 24);
}

TEST_P(TileOfKind, AnEvaluationChangesNothingAndFollowsFromTheState) {
  Tile tile = makeTile(GetParam());
  Tile other = makeTile(GetParam());
  const Batch b = randomBatch(6, kCols, kRows, 5);
  run(tile, 0, 3);
  run(other, 0, 3);
  const Numbers first = evaluate(tile), second = evaluate(tile);
  EXPECT_NE(first, second);
  EXPECT_EQ(tile.evaluated(), 12u);
  Numbers dx(6 * kCols);
  tile.backward(b.dView(), rowMajor(dx.data(), 6, kCols), kEvaluation);
  EXPECT_TRUE(sameState(tile.state(), other.state()));
  EXPECT_EQ(run(tile, 3, 2), run(other, 3, 2));
  EXPECT_EQ(tile.evaluated(), 0u);
  Tile again = makeTile(GetParam());
  run(again, 0, 3);
  EXPECT_EQ(evaluate(again), first);
  Numbers repeated(6 * kRows);
  const uint64_t begun = again.evaluationSample();
  EXPECT_EQ(evaluate(again), second);
  again.forwardAgain(b.xView(), rowMajor(repeated.data(), 6, kRows), begun);
  EXPECT_EQ(repeated, second);
  EXPECT_EQ(again.evaluated(), 12u);
}

TEST_P(TileOfKind, AnEvaluationLeavesTheRunningMean) {
  const Value::Map average{{"noise_management", "average_abs_max"}, {"is_perfect", false}};
  const TileConfig config = configOf(GetParam(), {{"forward", average}, {"backward", average}});
  Tile tile(kRows, kCols, config, 11, 3), other(kRows, kCols, config, 11, 3);
  for (uint64_t step = 0; step < 3; ++step) {
    evaluate(tile);
    EXPECT_EQ(run(tile, step, 1), run(other, step, 1));
  }
}

TEST_P(TileOfKind, AGridEvaluatesLikeItsTiles) {
  std::vector<Tile> apart, together;
  for (uint32_t id = 0; id < 2; ++id) {
    apart.push_back(makeTile(GetParam(), onCpu(1), 11, id));
    together.push_back(makeTile(GetParam(), onCpu(1), 11, id));
  }
  TileGrid grid({{&together[0], 0, 0}, {&together[1], kRows, 0}}, 2 * kRows, kCols);
  const Batch b = randomBatch(6, kCols, kRows, 5);
  Numbers y(6 * 2 * kRows);
  for (int read = 0; read < 2; ++read) {
    grid.forward(b.xView(), rowMajor(y.data(), 6, 2 * kRows), kEvaluation);
    for (size_t k = 0; k < 2; ++k) {
      const Numbers expected = evaluate(apart[k]);
      for (size_t i = 0; i < 6; ++i)
        for (size_t j = 0; j < kRows; ++j)
          EXPECT_EQ(y[i * 2 * kRows + k * kRows + j], expected[i * kRows + j]);
    }
  }
  EXPECT_EQ(together[1].evaluated(), 12u);
  EXPECT_EQ(together[1].counters().forwardSamples, 0u);
}

TEST_P(TileOfKind, ANewSeedKeepsTheStateAndIsSaved) {
  Tile tile = makeTile(GetParam());
  run(tile, 0, 3);
  const State before = tile.state();
  tile.reseed(99);
  const State after = tile.state();
  EXPECT_EQ(tile.seed(), 99u);
  EXPECT_EQ(tile.cellSeed(), 11u);
  for (const auto &[name, tensor] : before.tensors)
    EXPECT_EQ(after.tensors.at(name).bytes, tensor.bytes) << name;
  EXPECT_EQ(after.values.at("forward_samples"), before.values.at("forward_samples"));
  Tile restored = Tile::fromState(after, onCpu(2));
  const Numbers continued = run(tile, 3, 3);
  EXPECT_EQ(run(restored, 3, 3), continued);
  EXPECT_EQ(restored.cellSeed(), 11u);
  Tile old = Tile::fromState(before);
  EXPECT_NE(run(old, 3, 3), continued);
}

TEST_P(TileOfKind, NewCellsHoldTheWeightsWithinTheirBounds) {
  Tile tile = makeTile(GetParam());
  run(tile, 0, 3);
  const uint64_t mini = tile.counters().miniBatches;
  tile.reseed(99, true);
  EXPECT_EQ(tile.cellSeed(), 99u);
  EXPECT_EQ(tile.counters().miniBatches, mini);
  const Tile fresh = makeTile(GetParam(), onCpu(1), 99);
  const State own = tile.state(), theirs = fresh.state();
  for (const auto &[name, tensor] : theirs.tensors) {
    if (PulsedDevice::isOfCells(name)) {
      EXPECT_EQ(own.tensors.at(name).bytes, tensor.bytes) << name;
    }
  }
  Tile restored = Tile::fromState(own);
  EXPECT_EQ(run(restored, 3, 3), run(tile, 3, 3));
}

TEST_P(TileOfKind, AnotherPeripheryKeepsTheTile) {
  Tile tile = makeTile(GetParam());
  run(tile, 0, 3);
  evaluate(tile);
  TilePeriphery around = tile.config();
  around.forward.is_perfect = around.backward.is_perfect = true;
  Tile perfect = tile.withPeriphery(around);
  EXPECT_EQ(perfect.seed(), tile.seed());
  EXPECT_EQ(perfect.evaluated(), 6u);
  EXPECT_NE(evaluate(perfect), evaluate(tile));
  const Tile back = perfect.withPeriphery(tile.config());
  EXPECT_TRUE(sameState(back.state(), tile.state()));
}

}  // namespace
}  // namespace pulsora::testing
