#include "tile/computed_cells.h"

#include <gtest/gtest.h>

#include "util/message_test_util.h"

// Tiles whose cells are computed: the bits, states and sizes.

namespace pulsora::testing {
namespace {

TEST(ComputedCellsOfTiles, HaveTheBitsOfStoredOnesInEveryCompound) {
  int kinds = 0;
  for (const CompoundModel &model : compoundModels()) {
    if (!hasDevices(model)) continue;
    ++kinds;
    for (const Value::Map &device :
         {Value::Map{}, Value::Map{{"lifetime", 20.0}, {"lifetime_dtod", 0.3}},
          Value::Map{{"noise_merge", "batch"}, {"write_noise_std", 1.0}}}) {
      if (device.count("noise_merge") > 0 && model.kind != "single") continue;
      SCOPED_TRACE(model.kind);
      const TileConfig stored = configOf(settingsWith(model, "stored", device));
      const TileConfig computed = configOf(settingsWith(model, "computed", device));
      const CellTraining expected = trainCells(cpuContext(), stored, false);
      for (const bool saves : {false, true}) {
        const CellTraining found = trainCells(cpuContext(), computed, saves);
        expectSameValues(expected, found);
        for (const auto &[name, tensor] : found.state.tensors)
          EXPECT_FALSE(CellPlanes::isOf(name)) << name;
      }
      const Tile kept(21, 34, stored, 5), lent(21, 34, computed, 5);
      const auto bytes = [](const Tile &tile) {
        return *tile.statistics().at("memory_bytes").integer();
      };
      EXPECT_LT(bytes(lent), bytes(kept));
    }
  }
  EXPECT_GE(kinds, 6);
}

const CompoundModel &lrtt() { return compoundModel("lrtt", "kind"); }

TEST(ComputedCellsOfTiles, AutoComputesTheVisibleArrayOfAnAdapterAlone) {
  const auto stores = [](const Value::Map &values, const char *name) {
    return Tile(21, 34, configOf(values), 5).array(name).storesCells();
  };
  Value::Map values = settingsWith(lrtt(), "auto", {}, 100);
  EXPECT_FALSE(stores(values, "visible"));
  EXPECT_TRUE(stores(values, "fast_a"));
  EXPECT_TRUE(stores(values, "fast_b"));
  EXPECT_TRUE(stores(settingsWith(lrtt(), "stored", {}, 100), "visible"));
  EXPECT_FALSE(stores(settingsWith(lrtt(), "computed", {}, 1), "fast_a"));
  for (const char *relaxes : {"lifetime", "diffusion"})
    EXPECT_TRUE(stores(settingsWith(lrtt(), "auto", {{relaxes, 10.0}}, 100), "visible"));
  EXPECT_TRUE(stores(settingsWith(compoundModel("single", "kind"), "auto"), "visible"));
  values["rank"] = Value(0);
  EXPECT_TRUE(stores(values, "visible"));
  values["rank"] = Value(3);
  struct Every {
    Value transfers;
    bool inMiniBatches, isSeldom;
  };
  for (const Every &every :
       {Every{99, true, false}, Every{0, true, true}, Every{"auto", true, true},
        Every{999, false, false}, Every{1000, false, true}}) {
    values["transfer_every"] = every.transfers;
    values["units_in_mbatch"] = Value(every.inMiniBatches);
    EXPECT_EQ(stores(values, "visible"), !every.isSeldom) << every.transfers.describe();
  }
}

TEST(ComputedCellsOfTiles, StatesLoadIntoTilesThatHaveTheirCellsElsewhere) {
  const auto tileOf = [](const char *cells) {
    return Tile(21, 34, configOf(settingsWith(lrtt(), cells, {}, 100)), 5);
  };
  const Tile stored = tileOf("stored"), computed = tileOf("computed");
  for (const Tile *from : {&stored, &computed}) {
    for (const char *to : {"stored", "computed", "auto"}) {
      Tile tile = tileOf(to);
      const std::vector<float> zeros(21 * 34);
      tile.setWeights(rowMajor(zeros.data(), 21, 34));
      tile.loadState(from->state());
      EXPECT_TRUE(sameState(tile.state(), tileOf(to).state()));
    }
  }
  Tile other = tileOf("computed");
  State state = stored.state();
  state.values["visible/cells_drawn"] = computed.state().values.at("visible/cells_drawn");
  state.sign();
  EXPECT_THROW(other.loadState(state), StateError);  // both forms
  State none = computed.state();
  none.values.erase("visible/cells_drawn");
  none.sign();
  EXPECT_THROW(other.loadState(none), StateError);
}

TEST(ComputedCellsOfTiles, CellsOfAFileAreStoredFromThenOn) {
  const TileConfig config = configOf(settingsWith(lrtt(), "auto", {}, 100));
  Tile tile(21, 34, config, 5);
  State state = Tile(21, 34, configOf(settingsWith(lrtt(), "stored", {}, 100)), 5).state();
  // A file of before tells no form.
  state.values.at("config").map()->at("visible").map()->erase("cells");
  state.values.at("config").map()->at("fast").map()->erase("cells");
  state.sign();
  tile.loadState(state);
  EXPECT_FALSE(tile.array("visible").storesCells());  // those that the key draws
  std::byte &first = state.tensors.at("visible/cells").bytes[0];
  first ^= std::byte{1};
  state.sign();
  tile.loadState(state);
  ASSERT_TRUE(tile.array("visible").storesCells());
  const State changed = tile.state();
  EXPECT_EQ(changed.tensors.at("visible/cells").bytes[0], first);
  // They stay through copies, other noise and files, until there are new cells.
  Tile copy = Tile::fromState(changed);
  copy.reseed(8, false);
  EXPECT_EQ(copy.state().tensors.at("visible/cells").bytes[0], first);
  copy.reseed(9, true);
  EXPECT_FALSE(copy.array("visible").storesCells());
}

TEST(ComputedCellsOfTiles, OtherNoiseLeavesThemAndNewCellsAreOthers) {
  for (const char *cells : {"stored", "computed"}) {
    Tile tile(21, 34, configOf(settingsWith(lrtt(), cells)), 5);
    const auto bounds = [&] {
      const Buffer<float> planes = tile.array("visible").describeCells({});
      return std::vector<float>(planes.data(), planes.data() + 21 * 34);
    };
    const std::vector<float> before = bounds();
    tile.reseed(6, false);
    EXPECT_TRUE(sameBits(before, bounds()));
    tile = Tile::fromState(tile.state());
    EXPECT_TRUE(sameBits(before, bounds()));
    tile.reseed(6, true);
    EXPECT_FALSE(sameBits(before, bounds()));
    static std::vector<float> ofStored;
    if (ofStored.empty()) ofStored = bounds();
    EXPECT_TRUE(sameBits(ofStored, bounds()));
  }
}

TEST(ComputedCellsOfTiles, AnAdapterTakesAboutFourBytesAWeight) {
  Value::Map values = settingsWith(lrtt(), "auto", {{"reset_dtod", 0.0}}, 100);
  values["rank"] = Value(8);
  const Tile tile(512, 512, configOf(values), 5);
  const auto bytes = [&](const char *name) { return tile.array(name).memoryBytes(); };
  EXPECT_EQ(bytes("visible"), 4U * 512 * 512);
  const int64_t adapter = static_cast<int64_t>(bytes("fast_a") + bytes("fast_b"));
  EXPECT_EQ(adapter, 12 * 8 * 1024);
  const int64_t whole = *tile.statistics().at("memory_bytes").integer();
  EXPECT_LT(whole, 4 * 512 * 512 + 2 * adapter);
}

}  // namespace
}  // namespace pulsora::testing
