#include "tile/tile.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include "array/array_keys.h"
#include "compounds/single.h"
#include "devices/constant_step.h"
#include "lrtt/parameters.h"
#include "tile/tile_adapter.h"
#include "tile/tile_test_util.h"
#include "util/pulse_test_util.h"
#include "util/state_test_util.h"

namespace pulsora::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(Tile, TileOfKind, ::testing::ValuesIn(kinds()),
                         [](const auto &kind) { return kind.param; });

TEST_P(TileOfKind, Property37_AnySplitThreadsAndIsaGiveTheSameBits) {
  const Numbers expected = fresh(GetParam(), onCpu(1));
  EXPECT_EQ(fresh(GetParam(), onCpu(1)), expected);
  for (const int threads : {2, 3})
    EXPECT_EQ(fresh(GetParam(), onCpu(threads)), expected) << threads << " threads";
  for (const Isa isa : supportedIsas())
    EXPECT_EQ(fresh(GetParam(), onCpu(1, isa)), expected) << isaName(isa);
  for (const int64_t part : {1, 2, 4, 5})
    EXPECT_EQ(fresh(GetParam(), onCpu(1), part), expected) << "parts of " << part;
}

TEST_P(TileOfKind, SeedAndTileIdMakeAnotherTile) {
  const Numbers expected = fresh(GetParam(), onCpu(1));
  Tile seed = makeTile(GetParam(), onCpu(1), 12);
  Tile id = makeTile(GetParam(), onCpu(1), 11, 4);
  EXPECT_NE(run(seed, 0, 8), expected);
  EXPECT_NE(run(id, 0, 8), expected);
}

TEST_P(TileOfKind, ABackwardReadThatTakesInfiniteValuesReadsZerosInTheirPlace) {
  Tile tile = makeTile(GetParam());
  Tile other = makeTile(GetParam());
  Batch batch = randomBatch(4, kCols, kRows, 5);
  const auto first = batch.d.begin() + kRows;  // of the second row
  std::fill(first, first + kRows, 0.0f);
  Numbers expected(4 * kCols);
  other.backward(batch.dView(), rowMajor(expected.data(), 4, kCols));
  *first = std::numeric_limits<float>::infinity();
  BatchPart part;
  part.takesInfinite = true;
  Numbers dx(4 * kCols);
  tile.backward(batch.dView(), rowMajor(dx.data(), 4, kCols), part);
  for (size_t i = 0; i < dx.size(); ++i) {
    if (i / static_cast<size_t>(kCols) == 1) {
      EXPECT_TRUE(std::isnan(dx[i]));
    } else {
      EXPECT_EQ(dx[i], expected[i]);
    }
  }
  EXPECT_TRUE(sameState(tile.state(), other.state()));
}

TEST_P(TileOfKind, Property07_BadInputIsRefusedAndChangesNothing) {
  Tile tile = makeTile(GetParam());
  run(tile, 0, 1);
  const State before = tile.state();
  const Batch good = randomBatch(4, kCols, kRows, 5);
  Numbers y(4 * kRows);
  const auto yView = rowMajor(y.data(), 4, kRows);
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    Batch bad = good;
    bad.x[static_cast<size_t>(2 * kCols + 4)] = value;
    bad.d[1] = value;
    EXPECT_THROW(tile.update(bad.xView(), good.dView(), 0.1f), InputError);
    EXPECT_THROW(tile.update(good.xView(), bad.dView(), 0.1f), InputError);
    EXPECT_THROW(tile.forward(bad.xView(), yView), InputError);
    EXPECT_THROW(tile.update(good.xView(), good.dView(), value), ConfigError);
    EXPECT_THROW(tile.endBatch(value), ConfigError);
    try {
      tile.update(bad.xView(), good.dView(), 0.1f);
    } catch (const InputError &error) {
      EXPECT_NE(std::string(error.what()).find("x[2, 4] is "), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(tile.update(good.dView(), good.xView(), 0.1f), InputError);
  EXPECT_THROW(tile.update(good.xRows(0, 3), good.dView(), 0.1f), InputError);
  EXPECT_THROW(tile.forward(good.xRows(0, 3), yView), InputError);
  EXPECT_THROW(tile.setWeights(good.xView()), InputError);
  const State after = tile.state();
  EXPECT_EQ(after.values, before.values);
  for (const auto &[name, tensor] : before.tensors)
    EXPECT_EQ(after.tensors.at(name).bytes, tensor.bytes) << name;
}

TEST_P(TileOfKind, AReadIsRepeatedWithItsDrawsAndNotCounted) {
  Tile tile = makeTile(GetParam());
  const Batch batch = randomBatch(4, kCols, kRows, 5);
  Numbers first(4 * kRows), second(4 * kRows), again(4 * kRows);
  for (Numbers *y : {&first, &second}) tile.forward(batch.xView(), rowMajor(y->data(), 4, kRows));
  tile.forwardAgain(batch.xView(), rowMajor(again.data(), 4, kRows), 0);
  EXPECT_EQ(again, first);
  tile.forwardAgain(batch.xRows(2, 4), rowMajor(again.data(), 2, kRows), 6);
  EXPECT_TRUE(std::equal(second.begin() + 2 * kRows, second.end(), again.begin()));
  EXPECT_EQ(tile.counters().forwardSamples, 8u);

  Tile follows(kRows, kCols,
               configOf(GetParam(), {{"forward", Value::Map{{"noise_management", "average_abs_max"},
                                                            {"is_perfect", false}}}}),
               11, 3);
  EXPECT_THROW(follows.forwardAgain(batch.xView(), rowMajor(again.data(), 4, kRows), 0),
               ConfigError);
}

TEST_P(TileOfKind, CountsItsSamplesAndEvents) {
  Tile tile = makeTile(GetParam());
  run(tile, 0, 2, 4);
  EXPECT_EQ(tile.counters().forwardSamples, 12u);
  EXPECT_EQ(tile.counters().backwardSamples, 12u);
  EXPECT_EQ(tile.counters().updateSamples, 12u);
  EXPECT_EQ(tile.counters().miniBatches, 2u);
  const Numbers w(kRows * kCols, 0.01f);
  tile.setWeights(rowMajor<const float>(w.data(), kRows, kCols));
  EXPECT_EQ(tile.counters().events, 1u);
  Tile moved = std::move(tile);
  EXPECT_EQ(moved.counters().events, 1u);
  EXPECT_GT(*moved.statistics().at("memory_bytes").integer(), 0);
}

TEST(Tile, RefusesBadSizesSettingsAndContexts) {
  EXPECT_THROW(Tile(0, 3, TileConfig{}, 1), ConfigError);
  EXPECT_THROW(Tile(3, -1, TileConfig{}, 1), ConfigError);
  EXPECT_THROW(Tile(int64_t{1} << 20, int64_t{1} << 20, TileConfig{}, 1), ConfigError);
  TileConfig config;
  config.update.desired_bl = 0;
  try {
    Tile tile(3, 3, config, 1);
    ADD_FAILURE();
  } catch (const ConfigError &error) {
    EXPECT_NE(std::string(error.what()).find("update.desired_bl is 0"), std::string::npos);
  }
  EXPECT_THROW(Tile(3, 3, TileConfig{}, 1, 0, onCpu(0)), ConfigError);
  Tile tile(3, 3, TileConfig{}, 1);
  EXPECT_THROW(tile.setContext(onCpu(-1)), ConfigError);
  EXPECT_EQ(tile.context().cpu.threads, 1);
}

// --- arrays by name ---

TEST_P(TileOfKind, ArraysAreReadWrittenAndResetByName) {
  Tile tile = makeTile(GetParam());
  for (const std::string &name : tile.arrayNames()) {
    SCOPED_TRACE(name);
    const int64_t rows = tile.array(name).rows();
    const int64_t cols = tile.array(name).cols();
    const Numbers written(static_cast<size_t>(rows * cols), 0.05f);
    tile.setArray(name, rowMajor(written.data(), rows, cols));
    const uint64_t events = tile.counters().events;
    Numbers read(written.size());
    tile.getArray(name, rowMajor(read.data(), rows, cols));
    for (size_t i = 0; i < read.size(); ++i) EXPECT_NEAR(read[i], written[i], 0.02f) << i;
    // A reset takes a cell to its reset value, here 0 with spreads of 0.01 between cells and
    // resets.
    tile.resetColumns(name, cols - 1, 1, 1.0f);
    EXPECT_EQ(tile.counters().events, events + 1);
    Numbers after(written.size());
    tile.getArray(name, rowMajor(after.data(), rows, cols));
    for (int64_t i = 0; i < rows; ++i)
      EXPECT_NEAR(after[static_cast<size_t>(i * cols + cols - 1)], 0.0f, 0.08f) << i;
    EXPECT_THROW(tile.resetColumns(name, cols, 1, 1.0f), ConfigError);
    EXPECT_THROW(tile.resetColumns(name, 0, 1, 1.5f), ConfigError);
    EXPECT_THROW(tile.setArray(name, rowMajor(written.data(), cols, rows + 1)), InputError);
  }
  try {
    tile.array("stranger");
    ADD_FAILURE() << "nothing was thrown";
  } catch (const ConfigError &error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("'stranger'"), std::string::npos) << text;
    for (const std::string &name : tile.arrayNames())
      EXPECT_NE(text.find(name), std::string::npos) << text;
  }
}

TEST(Tile, CallsOfATileThatHasBeenMovedFromAreErrors) {
  Tile tile(2, 3, TileConfig{}, 1);
  const Tile moved = std::move(tile);
  EXPECT_EQ(moved.dSize(), 2);
  float x[3] = {}, y[2] = {};
  EXPECT_THROW(tile.dSize(), InputError);  // NOLINT(bugprone-use-after-move)
  EXPECT_THROW(tile.forward(rowMajor(x, 1, 3), rowMajor(y, 1, 2)), InputError);
  EXPECT_THROW(static_cast<void>(tile.state()), InputError);
  tile = Tile(4, 3, TileConfig{}, 1);
  EXPECT_EQ(tile.dSize(), 4);
}

TEST(Tile, OnlyATileWithAnAdapterOffersOne) {
  EXPECT_FALSE(makeTile("single").hasAdapter());
  EXPECT_FALSE(makeTile("ideal").hasAdapter());
  Tile single = makeTile("single");
  EXPECT_THROW(single.adapter(), ConfigError);
  Tile lrtt = makeTile("lrtt");
  ASSERT_TRUE(lrtt.hasAdapter());
  EXPECT_EQ(lrtt.adapter().rank(), 2);
  LRTTParams none;
  none.rank = 0;
  TileConfig config;
  config.compound = none;
  Tile rankZero(kRows, kCols, config, 1);
  EXPECT_FALSE(rankZero.hasAdapter());
  EXPECT_THROW(rankZero.adapter(), ConfigError);
}

TEST(Tile, ALongUpdateMayPauseAndEndBetweenTwoSamples) {
  constexpr int64_t kMany = 3000;
  const Batch b = randomBatch(kMany, kCols, kRows, 11);
  for (const std::string &kind : kinds()) {
    SCOPED_TRACE(kind);
    Tile whole = makeTile(kind);
    Tile parts = makeTile(kind);
    Tile ended = makeTile(kind);
    Tile same = makeTile(kind);
    whole.update(b.xView(), b.dView(), 0.01f, BatchEnd::Later);
    int pauses = 0;
    parts.update(b.xView(), b.dView(), 0.01f, BatchEnd::Later, [&] { ++pauses; });
    EXPECT_GE(pauses, 2);
    EXPECT_TRUE(sameState(whole.state(), parts.state()));
    EXPECT_THROW(ended.update(b.xView(), b.dView(), 0.01f, BatchEnd::Now,
                              [] { throw std::runtime_error("stop"); }),
                 std::runtime_error);
    const auto done = static_cast<int64_t>(ended.counters().updateSamples);
    EXPECT_GT(done, 0);
    EXPECT_LT(done, kMany);
    same.update(b.xRows(0, done), b.dRows(0, done), 0.01f, BatchEnd::Later);
    EXPECT_TRUE(sameState(ended.state(), same.state()));
  }
}

TEST(Tile, UpdatesThatMustNotBeCutDoNotPause) {
  constexpr int64_t kMany = 3000;
  const Batch b = randomBatch(kMany, kCols, kRows, 11);
  ConstantStep::Params merges;
  merges.noise_merge = NoiseMerge::Batch;
  SingleParams single;
  single.device = merges;
  TileConfig config;
  config.compound = single;
  Tile tile(kRows, kCols, config, 1);
  tile.update(b.xView(), b.dView(), 0.01f, BatchEnd::Now, [] { FAIL() << "it pauses"; });
}

TEST(Tile, CountersEndBeforeTheNumbersOfTheirDraws) {
  Tile tile = makeTile("single");
  State state = tile.state();
  for (const char *name :
       {"forward_samples", "backward_samples", "update_samples", "mini_batches", "events"}) {
    state.values[name] = Value(int64_t{1} << 44);
  }
  state.sign();
  tile.loadState(state);
  const Batch b = randomBatch(1, kCols, kRows, 1);
  Numbers y(kRows);
  Numbers dx(kCols);
  Numbers w(kRows * kCols);
  const auto weights = rowMajor(w.data(), kRows, kCols);
  EXPECT_THROW(tile.forward(b.xView(), rowMajor(y.data(), 1, kRows)), InputError);
  EXPECT_THROW(tile.backward(b.dView(), rowMajor(dx.data(), 1, kCols)), InputError);
  EXPECT_THROW(tile.update(b.xView(), b.dView(), 0.1f), InputError);
  EXPECT_THROW(tile.endBatch(0.1f), InputError);
  EXPECT_THROW(tile.setWeights(weights), InputError);
  EXPECT_THROW(tile.setArray("visible", weights), InputError);
  EXPECT_THROW(tile.resetColumns("visible", 0, 1, 1.0f), InputError);
  EXPECT_TRUE(sameState(tile.state(), state));
}

}  // namespace
}  // namespace pulsora::testing
