#include "array/computed_cells.h"

#include <gtest/gtest.h>

// Computed cells on a GPU: the bits of stored ones there, and of the CPU.

namespace pulsora {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

TEST(CudaComputedCells, Property36_HaveTheBitsOfStoredOnesAndOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  for (const DeviceModel &model : deviceModels()) {
    SCOPED_TRACE(model.name);
    expectBitsOfStored(gpuContext(), model.name);
    const DeviceParams device = spreadDevice(model.name, "computed");
    const CellHistory cpu = cellHistory(cpuContext(), device, false);
    const CellHistory gpu = cellHistory(gpuContext(), device, true);
    EXPECT_TRUE(sameBits(cpu.seen, gpu.seen));
    EXPECT_TRUE(sameState(cpu.state, gpu.state));  // with the checksum of cells
  }
}

TEST(CudaComputedCells, Property36_TransfersOfMergedLaunchesHaveTheBitsOfStoredCells) {
  PULSORA_REQUIRE_GPU();
  // Lists of arrays, which a GPU updates in one launch.
  const auto list = [](const char *cells) {
    const DeviceParams device = spreadDevice("SoftBounds", cells);
    std::vector<State> states;
    const Context context = gpuContext();
    std::vector<PulsedDevice> arrays;
    arrays.reserve(3);
    for (uint32_t k = 0; k < 3; ++k)
      arrays.emplace_back(context, device, 40 + k, 65, makeKey(7, 3, k));
    std::vector<BitLineMaker> makers(3);
    std::vector<ArrayPulses> pulses;
    for (size_t k = 0; k < 3; ++k) {
      const DeviceBatch on(context, trainingBatch(9, 65, arrays[k].rows(), false, k));
      makers[k].makeWords(context, on.x.view(), on.d.view(), 0.05f, device.granularity(), {},
                          makeKey(7, 4, static_cast<uint32_t>(k)), 0);
      pulses.push_back({&arrays[k], &makers[k].words()});
    }
    PulsedDevice::applyPulsesToEach(context, pulses.data(), 3);
    for (const PulsedDevice &array : arrays) array.saveTo(context, states.emplace_back(), "");
    return states;
  };
  const std::vector<State> stored = list("stored");
  const std::vector<State> computed = list("computed");
  for (size_t k = 0; k < stored.size(); ++k)
    EXPECT_TRUE(sameState(withoutCells(stored[k]), withoutCells(computed[k])));
}

}  // namespace
}  // namespace pulsora
