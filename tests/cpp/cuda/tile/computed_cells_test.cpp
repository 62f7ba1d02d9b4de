#include "tile/computed_cells.h"

#include <gtest/gtest.h>

// Tiles with computed cells on a GPU: the bits of stored cells, and of the CPU.

namespace pulsora {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

TEST(CudaComputedCellsOfTiles, Property36_HaveTheBitsOfStoredOnesInEveryCompound) {
  PULSORA_REQUIRE_GPU();
  for (const CompoundModel &model : compoundModels()) {
    if (!hasDevices(model)) continue;
    SCOPED_TRACE(model.kind);
    const TileConfig computed = configOf(settingsWith(model, "computed"));
    const CellTraining gpu = trainCells(reproducibleGpu(), computed, false);
    expectSameValues(trainCells(reproducibleGpu(), configOf(settingsWith(model, "stored")), false),
                     gpu);
    expectSameValues(trainCells(reproducibleGpu(), computed, true), gpu);
    const CellTraining cpu = trainCells(cpuContext(), computed, false);
    expectSameValues(cpu, gpu);
    EXPECT_TRUE(sameState(cpu.state, gpu.state));  // with the checksums of cells
  }
}

}  // namespace
}  // namespace pulsora
