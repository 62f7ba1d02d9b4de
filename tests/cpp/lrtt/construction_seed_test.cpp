#include <cstddef>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "lrtt/lrtt_test_util.h"

// The construction_seed of a device makes the same simulated chip again: the same cells for each
// array of any tile, other cells for each array within one.

namespace pulsora {
namespace {

/// The planes of cells of a tile's arrays, by the name of the array.
std::map<std::string, HostBytes> cellsOf(uint64_t tileSeed) {
  LrttRig rig(6, 6, 6);  // square, so that arrays differ in nothing but their draws
  SoftBounds::Params device = noisyCells(0.001f);
  device.construction_seed = 11;
  device.cells = CellStorage::Stored;
  rig.params.visible = rig.params.fast = device;
  rig.seed = tileSeed;
  rig.build();
  const auto cells = [&](const PulsedDevice &array) {
    State state;
    array.saveTo(rig.context, state, "");
    return state.tensors.at("cells").bytes;
  };
  return {{"visible", cells(rig.device->visible())},
          {"a", cells(rig.device->factors().a())},
          {"b", cells(rig.device->factors().b())}};
}

TEST(LrttConstructionSeed, ArraysOfATileDifferAndTilesAgree) {
  const auto one = cellsOf(1);
  EXPECT_NE(one.at("a"), one.at("b"));
  EXPECT_NE(one.at("visible"), one.at("a"));
  EXPECT_NE(one.at("visible"), one.at("b"));
  EXPECT_EQ(one, cellsOf(2));
}

}  // namespace
}  // namespace pulsora
