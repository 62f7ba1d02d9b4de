#include "periphery/one_hot_sums.h"

#include <gtest/gtest.h>
#include <vector>

#include "core/backend.h"
#include "core/check.h"
#include "periphery/analog_read.h"
#include "util/io_parameters_test_util.h"

// Sums of one-hot readings by the loops of each instruction set, against one reading after another.

namespace pulsora {
namespace {

TEST(OneHotSums, HaveTheBitsOfSingleReadings) {
  constexpr int64_t kOutputs = 37;
  for (const int64_t inputs : {1, 31, 128, 300}) {
    std::vector<float> weights;
    std::vector<float> variances;
    for (int64_t i = 0; i < kOutputs * inputs; ++i) {
      weights.push_back(static_cast<float>(i * 37 % 201 - 100) / 100.0f);
      variances.push_back(static_cast<float>(i % 7) * 1e-3f);
    }
    const auto seen = rowMajor<const float>(weights.data(), kOutputs, inputs);
    for (const IOParameters &parameters : testing::oneHotParameters()) {
      for (const bool windowed : {false, true}) {
        if (windowed && parameters.w_noise > 0.0f) continue;  // refused: noise would count twice
        AnalogRead read({}, parameters, Pass::Forward, inputs, kOutputs,
                        {makeKey(1, 2, 3), makeKey(1, 2, 4)});
        if (windowed) read.setCellVariance(variances.data());
        for (const uint64_t first : {uint64_t{0}, uint64_t{64}, uint64_t{13}}) {
          const OneHotRead one = read.oneHot(seen, first);
          std::vector<double> wanted(kOutputs);
          sumRows({}, kOutputs, inputs, OneHotMagnitude{one}, wanted.data());
          for (const Isa isa : supportedIsas()) {
            Context context;
            context.cpu.isa = isa;
            context.cpu.threads = 3;
            std::vector<double> sums(kOutputs);
            sumOneHot(context, one, sums.data());
            EXPECT_EQ(sums, wanted) << inputs << " " << isaName(isa) << " " << first;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace pulsora
