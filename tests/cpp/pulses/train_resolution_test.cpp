#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "pulses/bit_line_maker.h"
#include "util/pulse_test_util.h"

namespace pulsora::testing {
namespace {

constexpr RandomKey kKey = {0xC0FFEEU, 0xBEEFU};

// N = 2e5 samples of one slot, 5 sigma: rounding to the resolution keeps the mean probability.
TEST(BitLineMaker, StochasticRoundingKeepsTheMean) {
  constexpr int64_t kN = 200000;
  UpdateParameters p = parametersFor(1, false, false);
  p.res = 0.25f;
  p.sto_round = true;
  const std::vector<float> x = {0.1f, 0.3f, 0.5f, 0.8f};
  const Batch b = repeatedBatch(kN, x, {1.0f});
  BitLineMaker maker;
  maker.makeWords(Context{}, b.xView(), b.dView(), 0.001f, 0.001f, p, kKey, 0);
  for (size_t j = 0; j < x.size(); ++j) {
    int64_t fired = 0;
    for (int64_t s = 0; s < kN; ++s)
      fired += planeBit(maker.words(), maker.words().xBits, 4, s, static_cast<int64_t>(j), 0);
    const double mean = static_cast<double>(x[j]);
    EXPECT_NEAR(static_cast<double>(fired) / kN, mean, 5.0 * std::sqrt(mean * (1.0 - mean) / kN));
  }
  // Rounded once per line and sample: the slots of one train share their probability, which is a
  // multiple of 1/4.
  p.desired_bl = 64;
  maker.makeWords(Context{}, b.xRows(0, 2000), b.dRows(0, 2000), 0.064f, 0.001f, p, kKey, 0);
  for (int64_t s = 0; s < 2000; ++s) {
    int count = 0;
    for (int slot = 0; slot < 64; ++slot)
      count += planeBit(maker.words(), maker.words().xBits, 4, s, 0, slot);
    EXPECT_TRUE(count == 0 || std::abs(count - 16) < 5 * 4)
        << count;  // 0, or binomial(64, 1/4) within 5 sigma
  }
}

TEST(BitLineMaker, RoundsProbabilitiesToTheResolution) {
  UpdateParameters p = parametersFor(32, false, false);
  p.res = 0.5f;
  const Batch b = repeatedBatch(200, {0.2f, 0.6f, 0.8f}, {1.0f});  // rounded to 0, 1/2, 1
  BitLineMaker maker;
  maker.makeWords(Context{}, b.xView(), b.dView(), 0.032f, 0.001f, p, kKey, 0);
  int middle = 0;
  for (int64_t s = 0; s < 200; ++s) {
    EXPECT_EQ(signedCount(maker.words(), s, 0, 0), 0);
    EXPECT_EQ(signedCount(maker.words(), s, 0, 2), -32);
    middle -= signedCount(maker.words(), s, 0, 1);
  }
  EXPECT_NEAR(middle, 3200, 5 * 40);  // N = 6400 slots
}

TEST(BitLineMaker, ImplicitLevelsAreQuantisedRelativeToTheLargest) {
  UpdateParameters p = parametersFor(31, true, true);
  p.pulse_type = PulseType::DeterministicImplicit;
  p.x_res_implicit = 0.25f;
  const Batch b = repeatedBatch(1, {0.8f, -0.39f, 0.09f}, {0.5f});
  BitLineMaker maker;
  maker.makeWords(Context{}, b.xView(), b.dView(), 0.01f, 0.001f, p, kKey, 0);
  const float *x = maker.words().xLevels;
  EXPECT_NEAR(x[1] / x[0], -0.5, 1e-6);
  EXPECT_EQ(x[2], 0.0f);
  EXPECT_NEAR(x[0] * maker.words().dLevels[0] * 4.0f, 4.0, 1e-5);  // k = 4 in 4 slots
}

}  // namespace
}  // namespace pulsora::testing
