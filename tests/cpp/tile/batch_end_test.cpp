// The end of a mini-batch: an update is a whole mini-batch unless it says that parts follow.

#include <gtest/gtest.h>

#include "tile/tile_adapter.h"
#include "tile/tile_grid.h"
#include "tile_test_util.h"
#include "util/state_test_util.h"

namespace pulsora::testing {
namespace {

constexpr int64_t kBatch = 6;
constexpr float kLr = 0.1f;
constexpr uint64_t kSteps = 9;  // more than the 7 mini-batches between transfers of an adapter

/// Calls update(first, end, BatchEnd) for each part of a mini-batch. Parts end with the last update
/// or, if `apart`, with a call of their own, which the caller makes.
template <class Update>
void inParts(bool apart, const Update &update) {
  update(0, 1, BatchEnd::Later);
  update(1, 4, BatchEnd::Later);
  update(4, kBatch, apart ? BatchEnd::Later : BatchEnd::Now);
}

class BatchEndOfKind : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Tile, BatchEndOfKind, ::testing::ValuesIn(kinds()),
                         [](const auto &kind) { return kind.param; });

TEST_P(BatchEndOfKind, OneUpdateHasTheBitsOfItsPartsAndTheirEnd) {
  Value::Map extra;
  if (GetParam() == "lrtt") extra["units_in_mbatch"] = Value(true);
  const TileConfig config = configOf(GetParam(), extra);
  Tile whole(kRows, kCols, config, 5), parts(kRows, kCols, config, 5);
  Tile apart(kRows, kCols, config, 5), open(kRows, kCols, config, 5);
  for (uint64_t step = 0; step < kSteps; ++step) {
    const Batch b = randomBatch(kBatch, kCols, kRows, step);
    whole.update(b.xView(), b.dView(), kLr);
    inParts(false, [&](int64_t first, int64_t end, BatchEnd at) {
      parts.update(b.xRows(first, end), b.dRows(first, end), kLr, at);
    });
    inParts(true, [&](int64_t first, int64_t end, BatchEnd at) {
      apart.update(b.xRows(first, end), b.dRows(first, end), kLr, at);
    });
    apart.endBatch(kLr);
    open.update(b.xView(), b.dView(), kLr, BatchEnd::Later);
  }
  EXPECT_TRUE(sameState(whole.state(), parts.state()));
  EXPECT_TRUE(sameState(whole.state(), apart.state()));
  EXPECT_EQ(whole.counters().miniBatches, kSteps);
  EXPECT_EQ(open.counters().miniBatches, 0u);
  EXPECT_EQ(open.counters().updateSamples, kSteps * kBatch);
  Numbers ended(kRows * kCols), unended(kRows * kCols);
  whole.getWeights(rowMajor(ended.data(), kRows, kCols));
  open.getWeights(rowMajor(unended.data(), kRows, kCols));
  // The end matters: cells decay and diffuse there.
  EXPECT_EQ(ended == unended, whole.arrayNames().empty());
}

TEST(BatchEnd, OfAnAdapterAndOfAGridIsThatOfTheirTiles) {
  const TileConfig config =
      configOf("lrtt", {{"units_in_mbatch", Value(true)}, {"ab_update", Value("accumulated")}});
  const Numbers gates(kBatch * 2, 0.5f);
  const auto gate = [&](int64_t first, int64_t end) {
    return rowMajor(&gates[static_cast<size_t>(2 * first)], end - first, 2);
  };
  Tile gated(kRows, kCols, config, 5), gatedParts(kRows, kCols, config, 5);
  Tile alone(kRows, kCols, config, 5), together(kRows, kCols, config, 5);
  Tile some(kRows, kCols, config, 5), someParts(kRows, kCols, config, 5);
  TileGrid grid({{&together, 0, 0}}, kRows, kCols);
  TileGrid someGrid({{&some, 0, 0}}, kRows, kCols);
  TileGrid partsGrid({{&someParts, 0, 0}}, kRows, kCols);
  for (uint64_t step = 0; step < kSteps; ++step) {
    const Batch b = randomBatch(kBatch, kCols, kRows, step);
    gated.adapter().update(b.xView(), b.dView(), gate(0, kBatch), kLr);
    inParts(step % 2 == 0, [&](int64_t first, int64_t end, BatchEnd at) {
      gatedParts.adapter().update(b.xRows(first, end), b.dRows(first, end), gate(first, end), kLr,
                                  at);
    });
    if (step % 2 == 0) gatedParts.endBatch(kLr);
    alone.update(b.xView(), b.dView(), kLr);
    grid.update(b.xView(), b.dView(), kLr);
    someGrid.updateSome({0}, b.xView(), b.dView(), kLr);
    inParts(true, [&](int64_t first, int64_t end, BatchEnd at) {
      partsGrid.update(b.xRows(first, end), b.dRows(first, end), kLr, at);
    });
    partsGrid.endBatch(kLr);
  }
  EXPECT_EQ(gated.counters().miniBatches, kSteps);
  EXPECT_TRUE(sameState(gated.state(), gatedParts.state()));
  EXPECT_FALSE(sameState(gated.state(), alone.state()));
  for (const Tile *other : {&together, &some, &someParts})
    EXPECT_TRUE(sameState(alone.state(), other->state()));
}

}  // namespace
}  // namespace pulsora::testing
