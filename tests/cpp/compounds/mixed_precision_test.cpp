#include "compounds/mixed_precision.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "tile/tile_grid.h"
#include "tile/tile_test_util.h"
#include "util/message_test_util.h"
#include "util/state_test_util.h"

namespace pulsora::testing {
namespace {

/// A digital weight [kRows, kCols] after `step` steps.
Numbers masterAt(uint64_t step) {
  Numbers master(kRows * kCols);
  for (size_t i = 0; i < master.size(); ++i)
    master[i] = 0.3f * std::sin(0.7f * static_cast<float>(i) + 0.2f * static_cast<float>(step));
  return master;
}

TileConfig following(const std::string &name) {
  return configOf(name, {{"digital_weight", true}, {"transfer_every", 1}});
}

Numbers weightsOf(const Tile &tile) {
  Numbers w(static_cast<size_t>(tile.dSize() * tile.xSize()));
  tile.getWeights(rowMajor(w.data(), tile.dSize(), tile.xSize()));
  return w;
}

void followSteps(Tile &tile, uint64_t from, uint64_t steps) {
  for (uint64_t step = from; step < from + steps; ++step) {
    const Numbers master = masterAt(step);
    tile.follow(rowMajor(master.data(), kRows, kCols));
  }
}

std::vector<std::string> followers() {
  std::vector<std::string> names;
  for (const std::string &name : kinds())
    if (name.find("mixed_precision") == 0) names.push_back(name);
  return names;
}

TEST(MixedPrecision, Property37_FollowingHasTheSameBitsForAnyNumberOfThreads) {
  for (const std::string &name : followers()) {
    SCOPED_TRACE(name);
    Tile one(kRows, kCols, following(name), 11, 3, onCpu(1));
    Tile three(kRows, kCols, following(name), 11, 3, onCpu(3));
    followSteps(one, 0, 6);
    followSteps(three, 0, 6);
    EXPECT_TRUE(sameState(one.state(), three.state()));
  }
}

TEST(MixedPrecision, Property38_ResumeBetweenStepsIsTheUninterruptedRun) {
  for (const std::string &name : followers()) {
    SCOPED_TRACE(name);
    Tile whole(kRows, kCols, following(name), 11, 3, onCpu(1));
    followSteps(whole, 0, 3);
    Tile resumed = Tile::fromState(whole.state(), onCpu(1));
    followSteps(whole, 3, 3);
    followSteps(resumed, 3, 3);
    EXPECT_TRUE(sameState(whole.state(), resumed.state()));
  }
}

TEST(MixedPrecision, Property37_AGridFollowsAsItsTilesDo) {
  const TileConfig config = following("mixed_precision");
  const auto parts = [&] {
    std::vector<Tile> tiles;
    tiles.emplace_back(3, kCols, config, 5, 0, onCpu(1));
    tiles.emplace_back(kRows - 3, kCols, config, 5, 1, onCpu(1));
    return tiles;
  };
  std::vector<Tile> alone = parts();
  std::vector<Tile> together = parts();
  TileGrid grid({{together.data(), 0, 0}, {&together[1], 3, 0}}, kRows, kCols);
  for (uint64_t step = 0; step < 4; ++step) {
    const Numbers numbers = masterAt(step);
    const MatrixView<const float> master = rowMajor(numbers.data(), kRows, kCols);
    alone[0].follow(master.block(0, 0, 3, kCols));
    alone[1].follow(master.block(3, 0, kRows - 3, kCols));
    grid.follow(master);
  }
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(sameState(alone[i].state(), together[i].state()));
}

// Without noise, spreads and asymmetry, cells end within one step of the digital weight.
TEST(MixedPrecision, IdealCellsFollowWithinAStep) {
  const TileConfig config =
      readParams<TileConfig>(Value(Value::Map{{"kind", "mixed_precision"},
                                              {"visible", Value::Map{{"model", "ConstantStep"},
                                                                     {"dw_min", 0.01},
                                                                     {"dw_min_dtod", 0.0},
                                                                     {"dw_min_std", 0.0},
                                                                     {"up_down_dtod", 0.0},
                                                                     {"w_max_dtod", 0.0},
                                                                     {"w_min_dtod", 0.0}}}}),
                             "");
  Tile tile(kRows, kCols, config, 1, 0, onCpu(1));
  followSteps(tile, 0, 5);
  const Numbers master = masterAt(4);
  const Numbers found = weightsOf(tile);
  for (size_t i = 0; i < master.size(); ++i) EXPECT_LT(std::fabs(found[i] - master[i]), 0.01f);
}

// A unit of 1.3 pulses: the mean over 63 cells and 400 transfers. 5 sigma, with a variance of
// 0.3 * 0.7 a unit.
TEST(MixedPrecision, FractionsOfPulsesAreDrawnWithTheirMean) {
  constexpr int64_t kTransfers = 400;
  Numbers digital(kRows * kCols);
  Numbers out(digital.size());
  double sum = 0.0;
  for (int64_t t = 0; t < kTransfers; ++t) {
    digital.assign(digital.size(), 0.025f);
    LineVisits rows;
    rows.lines = rows.count = kRows;
    rows.first = static_cast<uint64_t>(t * kRows);
    const LagTaker taker{rows,
                         {},
                         rowMajor(digital.data(), kRows, kCols),
                         0.01f,
                         31.f,
                         1.3f,
                         makeKey(3, 4, 5),
                         rows.first,
                         nullptr,
                         out.data()};
    for (int64_t i = 0; i < kRows * kCols; ++i) taker(i);
    for (const float pulses : out) {
      EXPECT_TRUE(pulses == 2.0f || pulses == 3.0f) << pulses;
      sum += static_cast<double>(pulses);
    }
    for (const float rest : digital) EXPECT_NEAR(rest, 0.005f, 1e-6f);
  }
  const double count = static_cast<double>(kTransfers * kRows * kCols);
  EXPECT_NEAR(sum / count, 2.6, 5.0 * std::sqrt(0.6 * 0.4 / count));
}

TEST(MixedPrecision, BadMastersAreRefusedBeforeAnythingChanges) {
  Tile tile(kRows, kCols, following("mixed_precision"), 1, 0, onCpu(1));
  followSteps(tile, 0, 2);
  const State before = tile.state();
  Numbers master = masterAt(2);
  const auto refusal = [&](Tile &by, int64_t cols) {
    return messageOf([&] { by.follow(rowMajor(master.data(), kRows, cols)); });
  };
  EXPECT_NE(refusal(tile, kCols - 1).find("master has shape [7, 8]"), std::string::npos);
  Tile single = makeTile("single");
  EXPECT_NE(refusal(single, kCols).find("MixedPrecisionConfig"), std::string::npos);
  master[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(refusal(tile, kCols).find("master[0, 5] is nan"), std::string::npos);
  EXPECT_TRUE(sameState(before, tile.state()));
}

}  // namespace
}  // namespace pulsora::testing
