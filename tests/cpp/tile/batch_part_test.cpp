#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "tile/tile_adapter.h"
#include "tile/tile_test_util.h"
#include "util/pulse_test_util.h"
#include "util/state_test_util.h"

// Rows of a mini-batch that several tiles share are read as one tile reads them all.

namespace pulsora::testing {
namespace {

constexpr int64_t kSamples = 64;

/// Peripheries that together have every kind of noise, scale and repetition, except the sequential
/// scale.
std::vector<Value::Map> peripheries() {
  return {
      {},
      {{"inp_sto_round", true},
       {"inp_noise", 0.05},
       {"inp_asymmetry", 0.1},
       {"out_sto_round", true},
       {"out_noise_std", 0.3},
       {"noise_management", "max"}},
      {{"w_noise", 0.02}, {"w_noise_type", "additive_constant"}, {"noise_management", "none"}},
      {{"w_noise", 0.02},
       {"w_noise_type", "pcm_read"},
       {"ir_drop", 1.0},
       {"noise_management", "constant"},
       {"nm_thres", 0.5}},
      {{"v_offset_std", 0.1}, {"r_series", 0.05}, {"out_nonlinearity", 0.2}},
      {{"mv_type", "pos_neg_separate"}, {"w_read_asymmetry_dtod", 0.1}},
      {{"mv_type", "pos_neg_separate_digital_sum"}, {"noise_management", "abs_max_np_sum"}},
      {{"mv_type", "bit_serial"}, {"input_slice_bits", 2}, {"bound_management", "none"}},
      {{"mv_type", "bit_serial_analog_sum"}, {"bound_management", "none"}},
      {{"out_bound", 0.3}, {"bm_backward", true}},
      {{"out_bound", 0.3}, {"bound_management", "iterative_worst_case"}},
      {{"is_perfect", true}},
  };
}

/// A tile with weights in every array.
Tile trained(const std::string &kind, const Value::Map &periphery, Value::Map extra = {}) {
  extra["forward"] = extra["backward"] = Value(periphery);
  Tile tile(kRows, kCols, configOf(kind, std::move(extra)), 11, 3, onCpu(1));
  const Batch start = randomBatch(kCols, kCols, kRows, 1);
  tile.setWeights(start.xRows(0, kRows));
  tile.update(start.xView(), start.dView(), 0.1f);
  return tile;
}

/// The rows [begin, end) of a matrix of numbers.
MatrixView<float> rows(Numbers &of, int64_t begin, int64_t end, int64_t cols) {
  return rowMajor(of.data() + begin * cols, end - begin, cols);
}

TEST_P(TileOfKind, Property37_TilesThatShareTheRowsOfABatchReadThemAsOneTile) {
  const Batch batch = randomBatch(kSamples, kCols, kRows, 5);
  const std::vector<std::vector<int64_t>> cuts = {{0, 32, 64}, {0, 5, 5, 41, 64}};
  for (const Value::Map &periphery : peripheries()) {
    SCOPED_TRACE(Value(periphery).describe());
    for (const auto &edges : cuts) {
      Tile whole = trained(GetParam(), periphery);
      std::vector<Tile> parts;
      for (size_t i = 0; i + 1 < edges.size(); ++i) parts.push_back(trained(GetParam(), periphery));
      for (int repetition = 0; repetition < 2; ++repetition) {
        Numbers y(kSamples * kRows), dx(kSamples * kCols), parted(y), partedBack(dx);
        whole.forward(batch.xView(), rows(y, 0, kSamples, kRows));
        whole.backward(batch.dView(), rows(dx, 0, kSamples, kCols));
        for (size_t i = 0; i < parts.size(); ++i) {
          const int64_t begin = edges[i], end = edges[i + 1];
          const BatchPart part{begin, kSamples};
          parts[i].forward(batch.xRows(begin, end), rows(parted, begin, end, kRows), part);
          parts[i].backward(batch.dRows(begin, end), rows(partedBack, begin, end, kCols), part);
        }
        EXPECT_EQ(parted, y);
        EXPECT_EQ(partedBack, dx);
      }
      for (const Tile &part : parts)
        EXPECT_TRUE(sameState(withoutRepeats(part.state()), withoutRepeats(whole.state())));
    }
  }
}

TEST(BatchPart, GatedReadsAreSharedTheSameWay) {
  const Batch batch = randomBatch(kSamples, kCols, kRows, 5);
  const Batch gates = randomBatch(kSamples, 2, 2, 6);
  const auto read = [&](Tile &tile, int64_t begin, int64_t end, const BatchPart &part) {
    const int64_t count = end - begin;
    const auto empty = [&](int64_t cols) { return Numbers(static_cast<size_t>(count * cols)); };
    Numbers y = empty(kRows), inner = empty(2), dx = empty(kCols), gradient = empty(2);
    const auto gate = gates.xRows(begin, end);
    const auto inside = rowMajor(inner.data(), count, 2);
    TileAdapter adapter = tile.adapter();
    adapter.forward(batch.xRows(begin, end), gate, rowMajor(y.data(), count, kRows), inside, part);
    adapter.backward(batch.dRows(begin, end), gate, inside, rowMajor(dx.data(), count, kCols),
                     rowMajor(gradient.data(), count, 2), part);
    return std::vector<Numbers>{y, dx, gradient};
  };
  Tile whole = trained("lrtt", {});
  Tile first = trained("lrtt", {}), second = trained("lrtt", {});
  const auto all = read(whole, 0, kSamples, {});
  auto joined = read(first, 0, 20, {0, kSamples});
  const auto rest = read(second, 20, kSamples, {20, kSamples});
  for (size_t i = 0; i < all.size(); ++i) {
    joined[i].insert(joined[i].end(), rest[i].begin(), rest[i].end());
    EXPECT_EQ(joined[i], all[i]);
  }
  EXPECT_TRUE(sameState(second.state(), whole.state()));
}

TEST(BatchPart, SharedConvertersReadPartsToo) {
  const Batch batch = randomBatch(8, kCols, kRows, 5);
  const Value::Map shared{{"inject_io", "shared"}};
  Tile whole = trained("lrtt", {}, shared), part = trained("lrtt", {}, shared);
  Numbers y(8 * kRows), half(4 * kRows);
  whole.forward(batch.xView(), rowMajor(y.data(), 8, kRows));
  part.forward(batch.xRows(4, 8), rowMajor(half.data(), 4, kRows), {4, 8});
  EXPECT_EQ(half, Numbers(y.begin() + 4 * kRows, y.end()));
}

TEST(BatchPart, Property07_RowsThatDoNotFitAreRefusedAndCountNothing) {
  Tile tile = makeTile("single");
  const Batch batch = randomBatch(4, kCols, kRows, 5);
  Numbers y(4 * kRows), dx(4 * kCols);
  const auto out = rowMajor(y.data(), 4, kRows);
  const auto back = rowMajor(dx.data(), 4, kCols);
  for (const BatchPart part : {BatchPart{-1, 8}, BatchPart{5, 8}, BatchPart{0, 3}, BatchPart{1},
                               BatchPart{INT64_MAX, INT64_MAX}}) {
    EXPECT_THROW(tile.forward(batch.xView(), out, part), InputError);
    EXPECT_THROW(tile.backward(batch.dView(), back, part), InputError);
  }
  EXPECT_THROW(tile.forward(batch.xView(), out, {0, (int64_t{1} << 44) + 1}), InputError);
  EXPECT_TRUE(sameState(tile.state(), makeTile("single").state()));
}

TEST(BatchPart, AScaleThatFollowsFromAllSamplesBeforeTakesNoParts) {
  const Value::Map follows{{"noise_management", "average_abs_max"}};
  Tile tile = trained("single", follows);
  const State before = tile.state();
  const Batch batch = randomBatch(4, kCols, kRows, 5);
  Numbers y(4 * kRows), dx(4 * kCols);
  const auto out = rowMajor(y.data(), 4, kRows);
  for (const BatchPart part : {BatchPart{0, 8}, BatchPart{4, 8}}) {
    EXPECT_THROW(tile.forward(batch.xView(), out, part), ConfigError);
    EXPECT_THROW(tile.backward(batch.dView(), rowMajor(dx.data(), 4, kCols), part), ConfigError);
  }
  EXPECT_TRUE(sameState(tile.state(), before));
  tile.forward(batch.xView(), out, {0, 4});
}

}  // namespace
}  // namespace pulsora::testing
