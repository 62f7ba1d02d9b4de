#include "lrtt/settings.h"

#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <string>

#include "lrtt/lrtt_test_util.h"

namespace pulsora {
namespace {

LRTTParams ranked(int rank) {
  LRTTParams p = plainLrtt();
  p.rank = rank;
  return p;
}

std::string errorOf(const LRTTParams &p) {
  try {
    LRTTSettings(p, UpdateParameters{}, 6, 8);
  } catch (const ConfigError &error) {
    return error.what();
  }
  return "";
}

TEST(LrttSettings, ErrorsNameParameterValueAndRemedy) {
  const auto broken = [](const std::function<void(LRTTParams &)> &change) {
    LRTTParams p = ranked(4);
    change(p);
    return errorOf(p);
  };
  EXPECT_NE(errorOf(ranked(7)).find("lrtt.rank is 7"), std::string::npos);
  EXPECT_NE(errorOf(ranked(7)).find("between 0 (no adapter) and 6"), std::string::npos);
  EXPECT_NE(errorOf(ranked(-1)).find("lrtt.rank is -1"), std::string::npos);
  EXPECT_NE(broken([](LRTTParams &p) { p.rank_offset = 4; }).find("lrtt.rank_offset is 4"),
            std::string::npos);
  EXPECT_NE(broken([](LRTTParams &p) { p.rank_chunk = 0; }).find("lrtt.rank_chunk is 0"),
            std::string::npos);
  EXPECT_NE(broken([](LRTTParams &p) { p.rank_chunk = 5; }).find("lrtt.rank_chunk is 5"),
            std::string::npos);
  EXPECT_NE(broken([](LRTTParams &p) { p.ab_desired_bl = 0; }).find("lrtt.ab_desired_bl is 0"),
            std::string::npos);
  EXPECT_NE(
      broken([](LRTTParams &p) { p.transfer_desired_bl = 70000; }).find("lrtt.transfer_desired_bl"),
      std::string::npos);
  EXPECT_NE(broken([](LRTTParams &p) { p.transfer_every = -5; }).find("lrtt.transfer_every is -5"),
            std::string::npos);
  EXPECT_NE(broken([](LRTTParams &p) { p.reinit_gain = 0.0f; }).find("lrtt.reinit_gain is 0"),
            std::string::npos);
  EXPECT_NE(broken([](LRTTParams &p) { p.lora_alpha = kNaN; }).find("lrtt.lora_alpha"),
            std::string::npos);
  EXPECT_NE(broken([](LRTTParams &p) {
              p.projection = Projection::Reuse;
              p.forward_inject = false;
            }).find("lrtt.projection is 'reuse' and lrtt.forward_inject is False"),
            std::string::npos);
  EXPECT_NE(broken([](LRTTParams &p) {
              p.projection = Projection::Reuse;
              p.inject_io = InjectIo::Shared;
            }).find("lrtt.inject_io is 'shared'"),
            std::string::npos);
  EXPECT_NE(broken([](LRTTParams &p) {
              p.ab_lr_scale = LrScale::Matched;
              p.lora_alpha = 0.0f;
            }).find("lrtt.lora_alpha is 0"),
            std::string::npos);
  EXPECT_NE(broken([](LRTTParams &p) { p.transfer_rounds = 0; }).find("lrtt.transfer_rounds is 0"),
            std::string::npos);
  EXPECT_NE(broken([](LRTTParams &p) {
              p.reference_pulses = 10;
            }).find("lrtt.reference_pulses is 10 and lrtt.reference is 'none'"),
            std::string::npos);
  EXPECT_NE(broken([](LRTTParams &p) {
              p.reference = FastReference::SymmetricPoint;
              p.reference_pulses = -1;
            }).find("lrtt.reference_pulses is -1"),
            std::string::npos);
  EXPECT_NE(broken([](LRTTParams &p) { p.chopper_prob = 1.5f; }).find("lrtt.chopper_prob is 1.5"),
            std::string::npos);
  EXPECT_NE(broken([](LRTTParams &p) {
              p.chopper = Chopper::Reinit;
              p.reinit = Reinit::None;
            }).find("lrtt.chopper is 'reinit' and lrtt.reinit is 'none'"),
            std::string::npos);
  EXPECT_EQ(errorOf(ranked(0)), "");
  EXPECT_EQ(errorOf(ranked(6)), "");
}

TEST(LrttSettings, TheRankIsSixteenOrTheSmallerSide) {
  const auto rankOf = [](int64_t dSize, int64_t xSize) {
    return LRTTSettings(LRTTParams(), UpdateParameters{}, dSize, xSize).rank;
  };
  EXPECT_EQ(rankOf(256, 784), 16);
  EXPECT_EQ(rankOf(10, 784), 10);
  EXPECT_EQ(rankOf(784, 1), 1);
  LRTTParams p;
  p.rank_offset = 10;  // of the 10 components that there are
  EXPECT_THROW(LRTTSettings(p, UpdateParameters{}, 10, 784), ConfigError);
}

TEST(LrttSettings, AutoScalesMatchPlainSgdAndContinuity) {
  LRTTParams p = ranked(4);
  const LRTTSettings s(p, UpdateParameters{}, 6, 8);
  EXPECT_FLOAT_EQ(s.alpha, std::sqrt(8.0f / 8.0f) / 0.5f);
  EXPECT_EQ(s.transferLr, s.alpha);
  EXPECT_FLOAT_EQ(s.deviation, 0.5f * std::sqrt(2.0f / 8.0f));
  EXPECT_FLOAT_EQ(s.alpha * s.alpha * 2.0f * 0.25f * 4.0f / 8.0f, 1.0f);  // alpha^2 2 g^2 K / x
  EXPECT_EQ(s.lrOfA, s.alpha);
  EXPECT_EQ(s.lrOfB, s.alpha);

  p.rank_scaling = RankScaling::RsLora;
  p.ab_lr_scale = LrScale::None;
  p.lora_alpha = 3.0f;
  p.transfer_lr = -0.25f;
  const LRTTSettings given(p, UpdateParameters{}, 6, 8);
  EXPECT_EQ(given.alpha, 1.5f);
  EXPECT_EQ(given.transferLr, -0.25f);
  EXPECT_EQ(given.lrOfA, 1.0f);
  EXPECT_EQ(given.lrOfB, 1.0f);
}

// lr_A alpha K s_B^2 = 1, so that the first step is plain SGD's, and lr_A lr_B does not depend on
// the sizes of A and B.
TEST(LrttSettings, MatchedRatesFollowTheSizesOfTheFactors) {
  for (const float alpha : {0.05f, 0.7f, 10.0f, -2.0f}) {
    for (const float gain : {0.1f, 0.5f, 3.0f}) {
      LRTTParams p = ranked(4);
      p.ab_lr_scale = LrScale::Matched;
      p.lora_alpha = alpha;
      p.reinit_gain = gain;
      const LRTTSettings s(p, UpdateParameters{}, 6, 8);
      EXPECT_EQ(s.alpha, alpha);
      EXPECT_NEAR(s.lrOfA * alpha * 4.0f * s.deviation * s.deviation, 1.0f, 1e-5f);
      // At gain 0.5, alpha would be sqrt(8 / 8) / 0.5 = 2, and both rates lr alpha.
      EXPECT_NEAR(s.lrOfA * s.lrOfB, 4.0f, 1e-4f) << alpha << " " << gain;
      p.a_lr = 0.3f;
      p.b_lr = 0.2f;
      const LRTTSettings own(p, UpdateParameters{}, 6, 8);
      EXPECT_EQ(own.lrOfA, 0.3f);
      EXPECT_EQ(own.lrOfB, 0.2f);
    }
  }
}

TEST(LrttSettings, MatchedScalesFillTheCells) {
  LRTTParams p = ranked(16);
  p.ab_lr_scale = LrScale::Matched;
  ConstantStep::Params cell;
  cell.w_max = 0.8f;
  cell.w_min = -0.5f;
  cell.dw_min = 0.01f;
  p.fast = cell;
  UpdateParameters update;
  const LRTTSettings coarse(p, update, 100, 784);
  EXPECT_FLOAT_EQ(coarse.deviation, 0.2f * 0.5f);
  // A at its bound of 0.5 corresponds to a change of 1/16, an eighth of A.
  EXPECT_FLOAT_EQ(coarse.alpha, 1.0f / (4.0f * 0.1f * 8.0f));
  // Fine steps: the longest pulse trains limit A instead, in proportion to dw_min.
  cell.dw_min = 1e-4f;
  p.fast = cell;
  const float fine = LRTTSettings(p, update, 100, 784).alpha;
  EXPECT_GT(fine, 2.0f * coarse.alpha);
  update.desired_bl *= 2;
  EXPECT_FLOAT_EQ(LRTTSettings(p, update, 100, 784).alpha, fine / 2.0f);
}

TEST(LrttSettings, SwapTakesTheOtherSideForInputs) {
  LRTTParams p = ranked(2);
  p.swap_xd = true;
  const LRTTSettings s(p, UpdateParameters{}, 6, 8);
  EXPECT_EQ(s.inputs, 6);
  EXPECT_EQ(s.outputs, 8);
  EXPECT_FLOAT_EQ(s.alpha, std::sqrt(6.0f / 4.0f) / 0.5f);
}

TEST(LrttSettings, TrainsOfAdapterAndTransferHaveTheirOwnManagement) {
  UpdateParameters update;
  update.desired_bl = 20;
  LRTTParams p = ranked(2);
  p.ab_desired_bl = 5;
  p.ab_use_bl_management = false;
  const LRTTSettings s(p, update, 6, 8);
  EXPECT_EQ(s.fastUpdate.desired_bl, 5);
  EXPECT_TRUE(s.fastUpdate.update_management);
  EXPECT_FALSE(s.fastUpdate.update_bl_management);
  EXPECT_EQ(s.transferUpdate.desired_bl, 20);
  EXPECT_FALSE(s.transferUpdate.update_management);
}

TEST(LrttSettings, RefusesAGainThatOverflows) {
  for (const float gain : {1e-40f, 3e38f}) {
    LRTTParams p = ranked(2);
    p.reinit_gain = gain;
    EXPECT_THROW(LRTTSettings(p, UpdateParameters{}, 6, 8), ConfigError) << gain;
  }
  LRTTParams p = ranked(2);
  p.reinit_gain = 1e-40f;
  p.lora_alpha = 2.0f;
  EXPECT_EQ(LRTTSettings(p, UpdateParameters{}, 6, 8).alpha, 2.0f);
}

}  // namespace
}  // namespace pulsora
