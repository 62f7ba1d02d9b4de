#include <gtest/gtest.h>

#include "core/isa.h"
#include "pulses/coincidences.h"
#include "util/pulse_test_util.h"

namespace pulsora::testing {
namespace {

constexpr RandomKey kKey = {0xC0FFEEU, 0xBEEFU};

Context cpu(int threads = 1, Isa isa = bestIsa()) {
  Context context;
  context.cpu.threads = threads;
  context.cpu.isa = isa;
  return context;
}

struct Case {
  PulseType type;
  int slots;
  float lr;  // few pulses, or many
};

class CoincidencesAlone : public ::testing::TestWithParam<Case> {};

// Makers that may leave out what no cell notices; sides of few and of many lines, beginning within
// a block of random words.
TEST_P(CoincidencesAlone, AreThoseOfAllPulses) {
  const auto [type, slots, lr] = GetParam();
  UpdateParameters parameters = parametersFor(slots, true, true);
  parameters.pulse_type = type;
  for (const auto &[xSize, dSize] : {std::pair<int64_t, int64_t>{5, 3}, {3, 70}, {130, 2}}) {
    const Batch batch = randomBatch(101, xSize, dSize, 9);
    BitLineMaker all;
    all.makeWords(cpu(), batch.xView(), batch.dView(), lr, 0.01f, parameters, kKey, 7);
    int64_t pulses = 0;
    for (const Isa isa : supportedIsas()) {
      BitLineMaker alone;
      alone.setCoincidencesAlone(true);
      alone.makeWords(cpu(2, isa), batch.xView(), batch.dView(), lr, 0.01f, parameters, kKey, 7);
      for (int64_t s = 0; s < batch.samples; ++s) {
        for (int64_t i = 0; i < dSize; ++i) {
          for (int64_t j = 0; j < xSize; ++j) {
            const PulseLayout &layout = *all.words().layout;
            const int expected = signedCoincidences(all.words(), layout, s, i, j);
            ASSERT_EQ(signedCoincidences(alone.words(), *alone.words().layout, s, i, j), expected);
            pulses += std::abs(expected);
          }
        }
      }
    }
    EXPECT_GT(pulses, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(PulseTypes, CoincidencesAlone,
                         ::testing::Values(Case{PulseType::StochasticCompressed, 31, 0.0005f},
                                           Case{PulseType::StochasticCompressed, 31, 0.5f},
                                           Case{PulseType::StochasticCompressed, 70, 2.0f},
                                           Case{PulseType::Stochastic, 31, 0.0005f},
                                           Case{PulseType::Stochastic, 7, 0.5f}));

}  // namespace
}  // namespace pulsora::testing
