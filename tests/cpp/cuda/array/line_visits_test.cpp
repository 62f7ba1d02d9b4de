#include <gtest/gtest.h>

#include "array/line_visits_checks.h"

// Lines that are read, pulsed and reset one after another have the bits of the CPU on a GPU.

namespace pulsora::testing {
namespace {

TEST(CudaLineVisits, Property36_TapsPulsesAndResetsHaveTheBitsOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  for (const DeviceModel &model : deviceModels()) {
    if (!model.cuda()) continue;
    SCOPED_TRACE(model.name);
    for (const bool columns : {true, false}) {
      for (const bool random : {false, true}) {
        for (const float reset : {0.0f, 0.5f}) {
          LineCase c{makeParams(model.name, {{"write_noise_std", 2.0}, {"reset_std", 0.02}}),
                     37,
                     70,
                     columns,
                     2,
                     random,
                     reset};
          const LineRun host = tappedRun(cpuContext(), c, false);
          const LineRun gpu = tappedRun(gpuContext(), c, false);
          EXPECT_TRUE(sameBits(gpu.seen, host.seen));
          EXPECT_TRUE(sameState(gpu.state, host.state));
        }
        for (const bool digital : {false, true}) {
          LineCase c{makeParams(model.name), 37, 70, columns, 1, random};
          EXPECT_TRUE(sameState(pulsedRun(gpuContext(), c, 90, digital, false).state,
                                pulsedRun(cpuContext(), c, 90, digital, false).state));
        }
      }
    }
  }
}

// Threads that look at several elements each.
TEST(CudaLineVisits, Property36_PulsesOfManyLinesHaveTheBitsOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  for (const char *model : {"ConstantStep", "SoftBounds", "PiecewiseStep"}) {
    for (const bool columns : {true, false}) {
      for (const int64_t again : {0, 3}) {  // lines that are visited twice
        SCOPED_TRACE(message(model, columns ? ", columns" : ", rows", ", again ", again));
        const LineCase c{makeParams(model), 701, 1030, columns};
        const int64_t visits = c.lines() + again;
        for (const bool digital : {false, true}) {
          EXPECT_TRUE(sameState(pulsedRun(gpuContext(), c, visits, digital, false).state,
                                pulsedRun(cpuContext(), c, visits, digital, false).state));
        }
      }
    }
  }
}

}  // namespace
}  // namespace pulsora::testing
