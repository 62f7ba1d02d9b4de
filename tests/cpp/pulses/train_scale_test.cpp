#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "pulses/pulse_trains.h"
#include "util/pulse_test_util.h"

namespace pulsora::testing {
namespace {

// The scaling rule in double precision, step by step as the field states it (Gokmen & Vlasov 2016;
// AIHWKit's update management).
struct ReferenceScale {
  double length, xScale, dScale;
};
ReferenceScale referenceScale(const UpdateParameters &p, double lr, double g, double xMax,
                              double dMax) {
  if (lr == 0.0 || xMax == 0.0 || dMax == 0.0) return {0.0, 0.0, 0.0};
  double length = p.desired_bl;
  if (!p.fixed_bl && !p.update_bl_management && lr > g * length)
    length = std::min(std::ceil(lr / g), 65536.0);
  double dScaled = static_cast<double>(p.um_grad_scale) * dMax;
  const double k = lr * xMax * dScaled / g;
  if (p.update_bl_management) length = std::min(std::ceil(k), static_cast<double>(p.desired_bl));
  const double base = std::sqrt(lr / (g * length));
  ReferenceScale scale{length, base, base};
  if (p.update_management || p.update_bl_management) {
    if (k > length) dScaled *= length / k;
    scale.xScale *= std::sqrt(dScaled / xMax);
    scale.dScale *= std::sqrt(xMax / dScaled);
  }
  return scale;
}

TEST(PulseTrainScale, FollowsTheRuleOverAGridOfSettings) {
  int compared = 0;
  for (const int bl : {1, 5, 31, 32, 64, 100}) {
    for (int flags = 0; flags < 8; ++flags) {
      for (const float gradScale : {0.5f, 1.0f, 2.0f}) {
        UpdateParameters p =
            parametersFor(bl, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0);
        p.um_grad_scale = gradScale;
        for (const float lr : {1e-4f, 0.01f, 0.3f, 3.0f}) {
          for (const float g :
               {0.0011f, 0.019f}) {  // so that no quotient is a whole number but for rounding
            for (const float xMax : {0.0f, 1e-3f, 0.7f, 5.0f}) {
              for (const float dMax : {0.0f, 2e-3f, 0.9f, 40.0f}) {
                const PulseTrainScale t = trainScale(p, lr, g, xMax, dMax);
                const ReferenceScale r = referenceScale(p, lr, g, xMax, dMax);
                EXPECT_NEAR(t.xScale, r.xScale, 2e-6 * r.xScale);
                EXPECT_NEAR(t.dScale, r.dScale, 2e-6 * r.dScale);
                EXPECT_EQ(t.length, static_cast<int>(r.length))
                    << bl << ' ' << flags << ' ' << lr << ' ' << xMax << ' ' << dMax;
                ++compared;
              }
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(compared, 6 * 8 * 3 * 4 * 2 * 16);
}

TEST(PulseTrainScale, BalancesTheLargestElementsAndSaturatesTheLargeD) {
  const UpdateParameters p = parametersFor(31, true, true);
  const PulseTrainScale fits = trainScale(p, 0.01f, 0.001f, 0.9f, 0.8f);  // k = 7.2
  EXPECT_EQ(fits.length, 8);
  EXPECT_NEAR(fits.xScale * 0.9f, std::sqrt(7.2 / 8), 1e-6);
  EXPECT_NEAR(fits.dScale * 0.8f, std::sqrt(7.2 / 8), 1e-6);
  EXPECT_FALSE(trainsClip(fits, 0.9f, 0.8f));
  const PulseTrainScale clips = trainScale(p, 0.1f, 0.001f, 0.9f, 0.8f);  // k = 72
  EXPECT_EQ(clips.length, 31);
  EXPECT_NEAR(clips.xScale * 0.9f, 1.0, 1e-6);
  EXPECT_NEAR(clips.dScale * 0.8f, 72.0 / 31, 1e-5);
  EXPECT_TRUE(trainsClip(clips, 0.9f, 0.8f));
}

TEST(PulseTrainScale, StaysFiniteForEveryFiniteInput) {
  const std::vector<float> sizes = {0.0f, 1e-45f, 1e-38f, 2e-30f, 1e-10f,
                                    1.0f, 1e10f,  1e30f,  3.4e38f};
  for (int flags = 0; flags < 8; ++flags) {
    const UpdateParameters p =
        parametersFor(31, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0);
    for (const float lr : sizes) {
      for (const float xMax : sizes) {
        for (const float dMax : sizes) {
          const PulseTrainScale t = trainScale(p, lr, 0.001f, xMax, dMax);
          EXPECT_TRUE(std::isfinite(t.xScale) && std::isfinite(t.dScale));
          EXPECT_TRUE(t.length >= 0 && t.length <= 65536);
          EXPECT_EQ(pulseThreshold(pulseProbability(0.0f, t.xScale, 0.0f, false, 0.0f)), 0u);
          if (t.length == 0) continue;
          if ((flags & 3) == 0) continue;
          EXPECT_LE(t.xScale * xMax, 1.00001f) << lr << ' ' << xMax << ' ' << dMax;
          // An update beyond the longest train goes at full length: both largest elements fire in
          // each slot.
          if (double(lr) * double(xMax) * double(dMax) > 1e3) {
            EXPECT_GT(t.xScale * xMax, 0.99999f) << lr << ' ' << xMax << ' ' << dMax;
            EXPECT_GT(t.dScale * dMax, 0.99999f) << lr << ' ' << xMax << ' ' << dMax;
          }
        }
      }
    }
  }
}

TEST(PulseProbability, WhatIsNoNumberSendsNothing) {
  for (const float step : {0.0f, 0.25f}) {
    EXPECT_EQ(pulseProbability(kNaN, 1.0f, step, false, 0.0f), 0.0f);
    EXPECT_EQ(pulseProbability(0.0f, kInfinity, step, false, 0.0f), 0.0f);
    EXPECT_EQ(pulseProbability(-kInfinity, 1.0f, step, false, 0.0f), 1.0f);
    EXPECT_EQ(pulseProbability(-0.5f, 1.0f, step, false, 0.0f), 0.5f);
  }
  const PulseTrainScale scale{10, 1.0f, 1.0f, 1.0f};
  for (const bool counts : {false, true})
    EXPECT_EQ(pulseLevel(kNaN, scale, 1.0f, 1.0f, counts, 0.0f), 0.0f);
}

TEST(PulseTrainScale, LongestTrainIsThatOfTheScales) {
  for (const bool fixed : {false, true}) {
    for (const bool managed : {false, true}) {
      for (const float lr : {1e-6f, 0.01f, 0.5f, 30.0f, 3e38f}) {
        UpdateParameters p;
        p.fixed_bl = fixed;
        p.update_bl_management = managed;
        const auto longest = static_cast<int>(longestTrain(p, lr, 1e-3f));
        int seen = 0;
        for (const float largest : {1e-20f, 1e-3f, 1.0f, 1e20f})
          seen = std::max(seen, trainScale(p, lr, 1e-3f, largest, largest).length);
        EXPECT_EQ(seen, longest) << fixed << managed << lr;
      }
    }
  }
}

}  // namespace
}  // namespace pulsora::testing
