#include <gtest/gtest.h>

#include "array/array_list.h"

namespace pulsora::testing {
namespace {

TEST(PulsedDevice, AListOfArraysOfTwoModelsLeavesTheBitsOfOneByOne) {
  const DeviceParams first = makeParams(deviceModels().front().name, {{"write_noise_std", 2.0}});
  const DeviceParams last = makeParams(deviceModels().back().name, {{"dw_min", 0.002}});
  for (const int threads : {1, 3}) {
    expectListIsOneByOne(onCpu(threads), {{first, 19, 151}, {last, 3, 5, 1}, {first, 40, 7, 100}});
    expectListIsOneByOne(onCpu(threads), {{last, 19, 151}, {last, 8, 8, 31, 0}});
    expectListIsOneByOne(onCpu(threads), {{last, 6, 70}});
    expectListIsOneByOne(onCpu(threads), {});
  }
}

}  // namespace
}  // namespace pulsora::testing
