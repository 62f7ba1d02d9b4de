#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "tile/tile_adapter.h"
#include "tile/tile_programming.h"
#include "tile/tile_test_util.h"
#include "util/message_test_util.h"
#include "util/state_test_util.h"

// A tile whose weights another process stores: they come for reads, and go after them.

namespace pulsora::testing {
namespace {

Numbers tensorsOf(const Tile &tile) {
  Numbers packed(static_cast<size_t>(tile.changesSize(ChangedParts::Tensors)));
  tile.packChanges(packed.data(), ChangedParts::Tensors);
  return packed;
}

void readBoth(Tile &tile, const Batch &batch, Numbers &out) {
  Numbers y(static_cast<size_t>(batch.samples * kRows));
  Numbers dx(static_cast<size_t>(batch.samples * kCols));
  tile.forward(batch.xView(), rowMajor(y.data(), batch.samples, kRows));
  tile.backward(batch.dView(), rowMajor(dx.data(), batch.samples, kCols));
  out.insert(out.end(), y.begin(), y.end());
  out.insert(out.end(), dx.begin(), dx.end());
}

class ReleasedWeights : public TileOfKind {};
INSTANTIATE_TEST_SUITE_P(Tile, ReleasedWeights, ::testing::ValuesIn(kinds()),
                         [](const auto &kind) { return kind.param; });

TEST_P(ReleasedWeights, Property37_ComeBackWithTheBitsOfATileThatKeepsThem) {
  Tile owner = makeTile(GetParam()), reader = makeTile(GetParam());
  const size_t whole = reader.memoryBytes();
  reader.releaseWeights();
  const size_t released = reader.memoryBytes();
  EXPECT_LE(released + kRows * kCols * sizeof(float), whole);
  for (uint64_t step = 0; step < 5; ++step) {
    const Batch batch = randomBatch(6, kCols, kRows, 100 + step);
    Numbers expected, found;
    readBoth(owner, batch, expected);
    reader.unpackChanges(tensorsOf(owner).data(), ChangedParts::Tensors);
    readBoth(reader, batch, found);
    EXPECT_EQ(found, expected) << "step " << step;
    reader.releaseWeights();
    EXPECT_EQ(reader.memoryBytes(), released);
    owner.update(batch.xView(), batch.dView(), 0.1f);
    const std::vector<uint64_t> numbers = owner.changedNumbers();
    EXPECT_EQ(reader.restoreNumbers(numbers.data(), numbers.size()), numbers.size());
    EXPECT_EQ(reader.changedNumbers(), numbers);
    EXPECT_EQ(reader.memoryBytes(), released) << "numbers need no weights";
  }
  reader.unpackChanges(tensorsOf(owner).data(), ChangedParts::Tensors);
  EXPECT_TRUE(sameState(owner.state(), reader.state()));
  EXPECT_EQ(run(owner, 5, 3), run(reader, 5, 3)) << "the reader goes on by itself";
}

TEST_P(ReleasedWeights, AreAskedForBeforeAnythingChanges) {
  Tile tile = makeTile(GetParam()), same = makeTile(GetParam());
  run(tile, 0, 2);
  run(same, 0, 2);
  const Numbers tensors = tensorsOf(tile);
  const Batch b = randomBatch(6, kCols, kRows, 3);
  Numbers y(6 * kRows), dx(6 * kCols), w(kRows * kCols);
  const MatrixView<float> weights = rowMajor(w.data(), kRows, kCols);
  std::vector<std::pair<std::string, std::pair<int64_t, int64_t>>> arrays;
  for (const std::string &name : tile.arrayNames())
    arrays.push_back({name, {tile.array(name).rows(), tile.array(name).cols()}});
  tile.releaseWeights();
  tile.releaseWeights();
  std::vector<std::pair<std::string, std::function<void()>>> calls{
      {"forward", [&] { tile.forward(b.xView(), rowMajor(y.data(), 6, kRows)); }},
      {"forwardAgain", [&] { tile.forwardAgain(b.xView(), rowMajor(y.data(), 6, kRows), 0); }},
      {"backward", [&] { tile.backward(b.dView(), rowMajor(dx.data(), 6, kCols)); }},
      {"update", [&] { tile.update(b.xView(), b.dView(), 0.1f); }},
      {"endBatch", [&] { tile.endBatch(0.1f); }},
      {"getWeights", [&] { tile.getWeights(weights); }},
      {"setWeights", [&] { tile.setWeights(weights); }},
      {"explain", [&] { tile.explain(b.xView(), b.dView(), 0.1f); }},
      {"statistics", [&] { tile.statistics(); }},
      {"hardwareCounts", [&] { tile.hardwareCounts(); }},
      {"state", [&] { tile.state(); }},
      {"loadState", [&] { tile.loadState(same.state()); }},
      {"reseed", [&] { tile.reseed(5); }},
      {"withPeriphery", [&] { tile.withPeriphery(tile.config()); }},
      {"packChanges", [&] { tile.packChanges(y.data()); }}};
  EXPECT_EQ(tile.arrayNames().size(), arrays.size());
  for (const auto &each : arrays) {
    Numbers values(static_cast<size_t>(each.second.first * each.second.second));
    const auto size = each.second;
    const std::string &name = each.first;
    calls.emplace_back("array", [&tile, name] { tile.array(name); });
    calls.emplace_back("getArray", [&tile, name, size, values]() mutable {
      tile.getArray(name, rowMajor(values.data(), size.first, size.second));
    });
    calls.emplace_back("setArray", [&tile, name, size, values] {
      tile.setArray(name, rowMajor(values.data(), size.first, size.second));
    });
    calls.emplace_back("resetColumns", [&tile, name] { tile.resetColumns(name, 0, 1, 1.0f); });
  }
  if (tile.hasAdapter()) {
    calls.emplace_back("transfer", [&] { tile.adapter().transfer(); });
    calls.emplace_back("merge", [&] { tile.adapter().merge(); });
  }
  if (tile.isProgrammable()) calls.emplace_back("programming", [&] { tile.programming(); });
  for (const auto &[name, call] : calls) {
    EXPECT_NE(messageOf(call).find("does not store the weights of this tile"), std::string::npos)
        << name;
    EXPECT_THROW(call(), StateError) << name;
  }
  tile.unpackChanges(tensors.data(), ChangedParts::Tensors);
  EXPECT_TRUE(sameState(tile.state(), same.state()));
}

TEST(ReleasedWeightsAtAnAge, AreSeenAtThatAgeAgain) {
  const Value law(Value::Map{{"model", Value("Exponential")}});
  const auto make = [&] {
    return Tile(kRows, kCols, configOf("single", {{"retention", law}}), 11, 3, onCpu(1));
  };
  Tile owner = make(), reader = make();
  for (Tile *tile : {&owner, &reader}) {
    run(*tile, 0, 2);
    tile->drift(1e4, 2);
  }
  const size_t whole = reader.memoryBytes();
  Numbers seen(kRows * kCols), again(seen.size());
  owner.getWeights(rowMajor(seen.data(), kRows, kCols));
  reader.releaseWeights();
  EXPECT_LT(reader.memoryBytes(), whole);
  reader.unpackChanges(tensorsOf(owner).data(), ChangedParts::Tensors);
  EXPECT_EQ(reader.memoryBytes(), whole);
  reader.getWeights(rowMajor(again.data(), kRows, kCols));
  EXPECT_EQ(again, seen);
  EXPECT_EQ(run(owner, 2, 2), run(reader, 2, 2));
}

}  // namespace
}  // namespace pulsora::testing
