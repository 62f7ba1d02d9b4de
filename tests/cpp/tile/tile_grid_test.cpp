#include "tile/tile_grid.h"

#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tile/tile_test_util.h"
#include "util/message_test_util.h"
#include "util/state_test_util.h"

namespace pulsora::testing {
namespace {

constexpr int64_t kBatch = 40;

/// [first, second) of the lines of a matrix.
using Range = std::pair<int64_t, int64_t>;

/// The places of tiles, and the size of their matrix.
struct Plan {
  int64_t outputs;
  int64_t inputs;
  std::vector<std::pair<Range, Range>> tiles;  // rows and columns of each
};

/// 2 x 3 tiles, no two of which have the same size.
Plan whole() {
  return {9,
          14,
          {{{0, 4}, {0, 5}},
           {{0, 4}, {5, 11}},
           {{0, 4}, {11, 14}},
           {{4, 9}, {0, 5}},
           {{4, 9}, {5, 11}},
           {{4, 9}, {11, 14}}}};
}
/// Two blocks on a diagonal, of one and of two tiles.
Plan blocks() { return {8, 10, {{{0, 3}, {0, 6}}, {{3, 5}, {6, 10}}, {{5, 8}, {6, 10}}}}; }

std::vector<Tile> tilesOf(const Plan &plan, const std::string &kind, int threads = 1) {
  std::vector<Tile> tiles;
  for (const auto &[rows, cols] : plan.tiles)
    tiles.emplace_back(rows.second - rows.first, cols.second - cols.first, configOf(kind), 5,
                       static_cast<uint32_t>(tiles.size()), onCpu(threads));
  return tiles;
}

TileGrid gridOf(const Plan &plan, std::vector<Tile> &tiles) {
  std::vector<PlacedTile> placed;
  for (size_t i = 0; i < tiles.size(); ++i)
    placed.push_back({&tiles[i], plan.tiles[i].first.first, plan.tiles[i].second.first});
  return {placed, plan.outputs, plan.inputs};
}

/// Results of reads of a matrix.
struct Results {
  Numbers y, dx;

  Results(int64_t outputs, int64_t inputs)
      : y(static_cast<size_t>(kBatch * outputs)), dx(static_cast<size_t>(kBatch * inputs)) {}
};

Results readTogether(TileGrid &grid, const Batch &batch, const BatchPart &part = {}) {
  Results out(grid.outputs(), grid.inputs());
  grid.forward(batch.xView(), rowMajor(out.y.data(), kBatch, grid.outputs()), part);
  grid.backward(batch.dView(), rowMajor(out.dx.data(), kBatch, grid.inputs()), part);
  return out;
}

/// Reads by each tile, from copies of its lines, added up in order.
Results readOneByOne(const Plan &plan, std::vector<Tile> &tiles, const Batch &batch,
                     const BatchPart &part = {}) {
  Results out(plan.outputs, plan.inputs);
  const auto gapless = [](MatrixView<const float> from, const Range &range) {
    Numbers copy;
    for (int64_t i = 0; i < kBatch; ++i)
      for (int64_t j = range.first; j < range.second; ++j) copy.push_back(from(i, j));
    return copy;
  };
  const auto addTo = [](Numbers &sums, int64_t width, const Range &range, const Numbers &read) {
    const int64_t count = range.second - range.first;
    for (int64_t i = 0; i < kBatch; ++i)
      for (int64_t j = 0; j < count; ++j)
        sums[static_cast<size_t>(i * width + range.first + j)] +=
            read[static_cast<size_t>(i * count + j)];
  };
  for (size_t k = 0; k < tiles.size(); ++k) {
    const auto &[rows, cols] = plan.tiles[k];
    const int64_t d = tiles[k].dSize(), x = tiles[k].xSize();
    const Numbers in = gapless(batch.xView(), cols), back = gapless(batch.dView(), rows);
    Numbers y(static_cast<size_t>(kBatch * d)), dx(static_cast<size_t>(kBatch * x));
    tiles[k].forward(rowMajor(in.data(), kBatch, x), rowMajor(y.data(), kBatch, d), part);
    tiles[k].backward(rowMajor(back.data(), kBatch, d), rowMajor(dx.data(), kBatch, x), part);
    addTo(out.y, plan.outputs, rows, y);
    addTo(out.dx, plan.inputs, cols, dx);
    tiles[k].update(rowMajor(in.data(), kBatch, x), rowMajor(back.data(), kBatch, d), 0.1f);
  }
  return out;
}

class GridOfKind : public TileOfKind {};
INSTANTIATE_TEST_SUITE_P(TileGrid, GridOfKind, ::testing::ValuesIn(kinds()),
                         [](const auto &kind) { return kind.param; });

TEST_P(GridOfKind, Property37_HasTheBitsOfItsTilesOneByOne) {
  for (const Plan &plan : {whole(), blocks()}) {
    for (const int threads : {1, 3}) {
      std::vector<Tile> alone = tilesOf(plan, GetParam());
      std::vector<Tile> together = tilesOf(plan, GetParam(), threads);
      TileGrid grid = gridOf(plan, together);
      for (uint64_t step = 0; step < 3; ++step) {
        const Batch batch = randomBatch(kBatch, plan.inputs, plan.outputs, 20 + step);
        const BatchPart part = step == 1 ? BatchPart{5, 50} : BatchPart{};
        const Results expected = readOneByOne(plan, alone, batch, part);
        const Results found = readTogether(grid, batch, part);
        grid.update(batch.xView(), batch.dView(), 0.1f);
        EXPECT_EQ(found.y, expected.y);
        EXPECT_EQ(found.dx, expected.dx);
      }
      for (size_t k = 0; k < alone.size(); ++k)
        EXPECT_TRUE(sameState(alone[k].state(), together[k].state())) << "tile " << k;
    }
  }
}

// Two processes, each of which makes the pulses of some tiles and sends the changes.
TEST_P(GridOfKind, Property37_TilesUpdatedElsewhereHaveTheSameBits) {
  const Plan plan = whole();
  std::vector<Tile> alone = tilesOf(plan, GetParam());
  std::vector<Tile> mine = tilesOf(plan, GetParam()), theirs = tilesOf(plan, GetParam());
  TileGrid grid = gridOf(plan, alone), here = gridOf(plan, mine), there = gridOf(plan, theirs);
  const TileGrid::Numbers first = {4, 0, 1}, second = {5, 2, 3};
  uint64_t step = 0;
  const auto share = [&](const TileGrid::Numbers &tiles, TileGrid &from, TileGrid &to) {
    const ChangedParts parts = step % 2 == 0 ? ChangedParts::All : ChangedParts::Tensors;
    Numbers changes(static_cast<size_t>(from.changesSize(tiles, parts)));
    const auto size = static_cast<int64_t>(changes.size());
    from.packChanges(tiles, {changes.data(), size}, parts);
    to.unpackChanges(tiles, {changes.data(), size}, parts);
    if (parts == ChangedParts::All) return;
    const std::vector<uint64_t> counted = to.changedNumbers(tiles);
    EXPECT_NE(counted, from.changedNumbers(tiles)) << "tensors have no numbers";
    to.restoreNumbers(tiles, from.changedNumbers(tiles));
  };
  // The cells of tiles that others update need no memory, and no bit follows from that.
  there.computeCells(first);
  for (; step < 4; ++step) {
    const Batch batch = randomBatch(kBatch, plan.inputs, plan.outputs, 20 + step);
    const Results expected = readTogether(grid, batch);
    EXPECT_EQ(readTogether(here, batch).y, expected.y);
    EXPECT_EQ(readTogether(there, batch).dx, expected.dx);
    grid.update(batch.xView(), batch.dView(), 0.1f);
    here.updateSome(first, batch.xView(), batch.dView(), 0.1f);
    EXPECT_FALSE(sameState(mine[5].state(), alone[5].state()));
    there.updateSome(second, batch.xView(), batch.dView(), 0.1f);
    share(first, here, there);
    share(second, there, here);
    for (size_t k = 0; k < alone.size(); ++k) {
      EXPECT_TRUE(sameState(alone[k].state(), mine[k].state())) << "tile " << k;
      // Those of `first` have other tensors: their cells are computed.
      if (k == 2 || k == 3 || k == 5) {
        EXPECT_TRUE(sameState(alone[k].state(), theirs[k].state())) << "tile " << k;
      }
    }
    EXPECT_EQ(there.changedNumbers(there.all()), grid.changedNumbers(grid.all()));
    Numbers one(static_cast<size_t>(grid.changesSize(grid.all()))), other(one.size());
    grid.packChanges(grid.all(), {one.data(), static_cast<int64_t>(one.size())});
    there.packChanges(grid.all(), {other.data(), static_cast<int64_t>(other.size())});
    EXPECT_EQ(std::memcmp(one.data(), other.data(), one.size() * sizeof(float)), 0);
  }
}

TEST(TileGrid, RefusesChangesOfOtherTiles) {
  const Plan plan = whole();
  std::vector<Tile> tiles = tilesOf(plan, "single");
  TileGrid grid = gridOf(plan, tiles);
  Numbers changes(static_cast<size_t>(grid.changesSize({0})));
  const auto size = static_cast<int64_t>(changes.size());
  grid.packChanges({0}, {changes.data(), size});
  const State before = tiles[0].state();
  const auto refusal = [&](const TileGrid::Numbers &named, int64_t floats) {
    return messageOf([&] { grid.unpackChanges(named, {changes.data(), floats}); });
  };
  EXPECT_NE(refusal({6}, size).find("there is no tile 6 in a grid of 6"), std::string::npos);
  EXPECT_NE(refusal({0, 0}, 2 * size).find("tile 0 is named twice"), std::string::npos);
  EXPECT_NE(refusal({0}, size - 1).find(" floats, and those of 1 tiles take "), std::string::npos);
  EXPECT_EQ(refusal({0}, size), "");
  EXPECT_TRUE(sameState(before, tiles[0].state()));
  // Of the same sizes, and with another seed.
  Tile other(tiles[0].dSize(), tiles[0].xSize(), configOf("single"), 6, 0, onCpu(1));
  const State its = other.state();
  ASSERT_EQ(other.changesSize(), size);
  EXPECT_THROW(other.unpackChanges(changes.data()), StateError);
  EXPECT_TRUE(sameState(its, other.state()));
  std::vector<uint64_t> numbers = tiles[0].changedNumbers();
  EXPECT_THROW(other.restoreNumbers(numbers.data(), numbers.size()), StateError);
  EXPECT_TRUE(sameState(its, other.state()));
  numbers.push_back(0);
  EXPECT_NE(messageOf([&] { grid.restoreNumbers({0}, numbers); }).find("1 tiles took "),
            std::string::npos);
  numbers.resize(2);
  EXPECT_NE(messageOf([&] { grid.restoreNumbers({0}, numbers); }).find("there are 2 numbers"),
            std::string::npos);
}

TEST(TileGrid, RefusesTilesThatOverlapOrLeaveLinesOut) {
  std::vector<Tile> tiles = tilesOf(whole(), "single");
  const auto refusal = [&](std::vector<PlacedTile> placed, int64_t outputs, int64_t inputs) {
    return messageOf([&] { TileGrid(placed, outputs, inputs); });
  };
  Tile *first = tiles.data();  // [4, 5]
  EXPECT_NE(refusal({}, 4, 5).find("there are no tiles"), std::string::npos);
  EXPECT_NE(refusal({{first, 0, 0}}, 4, 6).find("the tiles hold 5 inputs and the matrix has 6"),
            std::string::npos);
  EXPECT_NE(refusal({{first, 1, 0}}, 5, 5).find("a tile holds the outputs from 1 on"),
            std::string::npos);
  EXPECT_NE(refusal({{first, 0, 0}, {first + 1, 0, 4}}, 4, 10).find("the inputs from 4 on"),
            std::string::npos);
  EXPECT_NE(refusal({{first, 0, 0}, {first + 3, 0, 0}}, 5, 5).find("the outputs from 0 on"),
            std::string::npos);
  EXPECT_NE(refusal({{first, 0, 0}, {first, 0, 0}}, 4, 5).find("each place of a grid"),
            std::string::npos);
  EXPECT_EQ(refusal({{first, 0, 0}}, 4, 5), "");
}

TEST(TileGrid, RefusesBatchesThatDoNotFitAndChangesNothing) {
  const Plan plan = whole();
  std::vector<Tile> tiles = tilesOf(plan, "single");
  TileGrid grid = gridOf(plan, tiles);
  const State before = tiles.back().state();
  const Batch wide = randomBatch(kBatch, plan.inputs + 1, plan.outputs, 1);
  const Batch batch = randomBatch(kBatch, plan.inputs, plan.outputs, 1);
  Numbers y(static_cast<size_t>(kBatch * plan.outputs));
  const MatrixView<float> out = rowMajor(y.data(), kBatch, plan.outputs);
  EXPECT_THROW(grid.forward(wide.xView(), out), InputError);
  EXPECT_THROW(grid.forward(batch.xView(), out.block(0, 0, 3, plan.outputs)), InputError);
  EXPECT_THROW(grid.update(wide.xView(), wide.dView(), 0.1f), InputError);
  EXPECT_THROW(grid.update(batch.xView(), batch.dRows(0, 3), 0.1f), InputError);
  EXPECT_TRUE(sameState(before, tiles.back().state()));
}

// The last block holds the fault: no tile before it may have been read or changed.
TEST(TileGrid, RefusesInputsThatAreNotFiniteBeforeTheFirstTile) {
  const Plan plan = whole();
  std::vector<Tile> tiles = tilesOf(plan, "single");
  TileGrid grid = gridOf(plan, tiles);
  const State before = tiles.front().state();
  Batch batch = randomBatch(kBatch, plan.inputs, plan.outputs, 1);
  batch.x.back() = std::numeric_limits<float>::quiet_NaN();
  batch.d.back() = std::numeric_limits<float>::infinity();
  Numbers y(static_cast<size_t>(kBatch * plan.outputs));
  Numbers dx(static_cast<size_t>(kBatch * plan.inputs));
  const std::string forward =
      messageOf([&] { grid.forward(batch.xView(), rowMajor(y.data(), kBatch, plan.outputs)); });
  EXPECT_NE(forward.find("x[39, 13] is nan"), std::string::npos) << forward;
  const std::string backward =
      messageOf([&] { grid.backward(batch.dView(), rowMajor(dx.data(), kBatch, plan.inputs)); });
  EXPECT_NE(backward.find("d[39, 8] is inf"), std::string::npos) << backward;
  EXPECT_THROW(grid.update(batch.xView(), batch.dView(), 0.1f), InputError);
  EXPECT_TRUE(sameState(before, tiles.front().state()));
}

}  // namespace
}  // namespace pulsora::testing
