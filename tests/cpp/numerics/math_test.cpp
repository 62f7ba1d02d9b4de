#include "numerics/math.h"

#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "util/fnv_hash.h"

namespace {

constexpr float kInf = pulsora::kInfinity;
constexpr float kMax = std::numeric_limits<float>::max();
constexpr float kTiny = std::numeric_limits<float>::denorm_min();
constexpr float kNormalMin = std::numeric_limits<float>::min();

double ulpOf(double value) {
  int exponent = 0;
  std::frexp(std::max(static_cast<float>(std::fabs(value)), kNormalMin), &exponent);
  return std::ldexp(1.0, exponent - 24);
}

// Largest error in ulp over every 4001st float in [low, high] whose exact result is a normal float.
template <class Function, class Exact>
double maxUlp(float low, float high, Function function, Exact exact) {
  double worst = 0.0;
  int64_t count = 0;
  for (uint64_t bits = 0; bits <= 0xFFFFFFFFU; bits += 4001) {
    const float x = pulsora::bitCast<float>(static_cast<uint32_t>(bits));
    if (!(x >= low && x <= high)) {
      continue;
    }
    const double wanted = exact(static_cast<double>(x));
    if (std::fabs(wanted) < kNormalMin || std::fabs(wanted) > kMax) {
      continue;
    }
    ++count;
    const double error = std::fabs(static_cast<double>(function(x)) - wanted) / ulpOf(wanted);
    worst = error <= worst ? worst : error;  // keeps NaN
  }
  EXPECT_GT(count, 1000);
  return worst;
}

float sineOf(float turns) {
  float sine = 0.0F;
  float cosine = 0.0F;
  pulsora::sinCosTurns(turns, &sine, &cosine);
  return sine;
}

float cosineOf(float turns) {
  float sine = 0.0F;
  float cosine = 0.0F;
  pulsora::sinCosTurns(turns, &sine, &cosine);
  return cosine;
}

double turnsToRadians(double turns) { return 2.0 * M_PI * (turns - std::rint(turns)); }

TEST(Math, Accuracy) {
  const auto log = [](double x) { return std::log(x); };
  const auto log1p = [](double x) { return std::log1p(x); };
  const auto exp = [](double x) { return std::exp(x); };
  const auto exp2 = [](double x) { return std::exp2(x); };
  const auto expm1 = [](double x) { return std::expm1(x); };
  const auto tanh = [](double x) { return std::tanh(x); };
  EXPECT_LE(maxUlp(0.0F, kMax, [](float x) { return pulsora::log(x); }, log), 0.54);
  EXPECT_LE(maxUlp(-1.0F, kMax, [](float x) { return pulsora::log1p(x); }, log1p), 0.66);
  EXPECT_LE(maxUlp(-104.0F, 89.0F, [](float x) { return pulsora::exp(x); }, exp), 1.01);
  EXPECT_LE(maxUlp(-120.0F, 120.0F, [](float x) { return pulsora::exp2Clamped(x); }, exp2), 2.03);
  EXPECT_LE(maxUlp(-104.0F, 89.0F, [](float x) { return pulsora::expm1(x); }, expm1), 1.42);
  EXPECT_LE(maxUlp(-30.0F, 30.0F, [](float x) { return pulsora::tanh(x); }, tanh), 2.52);
}

TEST(Math, PowAccuracy) {
  for (const float y :
       {-30.0F, -10.0F, -1.5F, -0.333F, 0.01F, 0.5F, 1.0F, 2.0F, 3.7F, 30.0F, 250.0F}) {
    const double bound = std::fabs(y) <= 10.0F ? 1.1 : (std::fabs(y) <= 30.0F ? 1.4 : 5.6);
    EXPECT_LE(maxUlp(
                  0.0F, kMax, [y](float x) { return pulsora::pow(x, y); },
                  [y](double x) { return std::pow(x, static_cast<double>(y)); }),
              bound)
        << "y = " << y;
  }
  for (const float x : {1e-40F, 0.001F, 0.99F, 1.0001F, 2.0F, 7.3F, 1e30F}) {
    EXPECT_LE(maxUlp(
                  -1e6F, 1e6F, [x](float y) { return pulsora::pow(x, y); },
                  [x](double y) { return std::pow(static_cast<double>(x), y); }),
              1.1)
        << "x = " << x;
  }
}

TEST(Math, LogarithmOfNormalNumbers) {
  double worst = 0.0;
  for (uint32_t bits = 0x00800000U; bits < 0x7f800000U; bits += 61U) {
    const auto x = pulsora::bitCast<float>(bits);
    const double wanted = std::log2(static_cast<double>(x));
    const float found = pulsora::log2OfNormal(x);
    const double rounding =
        0.5 * static_cast<double>(std::nextafterf(std::abs(found), kInf) - std::abs(found));
    worst = std::max(worst, std::abs(static_cast<double>(found) - wanted) - rounding);
  }
  EXPECT_LE(worst, 4.2e-7);
  for (const float power : {-126.0F, -3.0F, 0.0F, 1.0F, 127.0F})
    EXPECT_EQ(pulsora::log2OfNormal(std::exp2(power)), power);
}

TEST(Math, Limit) {
  for (const float x : {-kInf, -2.0F, -1.0F, -0.0F, 0.0F, 0.5F, 3.0F, 7.0F, kInf})
    EXPECT_EQ(pulsora::limit(x, -1.0F, 3.0F), std::min(std::max(x, -1.0F), 3.0F)) << x;
  EXPECT_EQ(pulsora::limit(pulsora::kNaN, -1.0F, 3.0F), -1.0F);
}

TEST(Math, SinCosAccuracy) {
  const auto sine = [](double t) { return std::sin(turnsToRadians(t)); };
  const auto cosine = [](double t) { return std::cos(turnsToRadians(t)); };
  EXPECT_LE(maxUlp(-0.125F, 0.125F, sineOf, sine), 0.97);
  EXPECT_LE(maxUlp(-0.125F, 0.125F, cosineOf, cosine), 0.97);
  double worst = 0.0;
  for (int i = -400000; i <= 400000; ++i) {
    const float turns = static_cast<float>(i) * 7.7e-5F;
    const auto exact = static_cast<double>(turns);
    worst = std::max(worst, std::fabs(static_cast<double>(sineOf(turns)) - sine(exact)));
    worst = std::max(worst, std::fabs(static_cast<double>(cosineOf(turns)) - cosine(exact)));
  }
  EXPECT_LE(worst, 5.1e-8);
  for (int quarter = -8; quarter <= 8; ++quarter) {
    const float turns = static_cast<float>(quarter) * 0.25F;
    EXPECT_EQ(sineOf(turns), std::rint(sine(static_cast<double>(turns))));
    EXPECT_EQ(cosineOf(turns), std::rint(cosine(static_cast<double>(turns))));
  }
}

TEST(Math, SpecialValues) {
  EXPECT_EQ(pulsora::log(0.0F), -kInf);
  EXPECT_EQ(pulsora::log(-0.0F), -kInf);
  EXPECT_EQ(pulsora::log(1.0F), 0.0F);
  EXPECT_EQ(pulsora::log(kInf), kInf);
  EXPECT_TRUE(std::isnan(pulsora::log(-1.0F)));
  EXPECT_TRUE(std::isnan(pulsora::log(pulsora::kNaN)));
  EXPECT_EQ(pulsora::log1p(-1.0F), -kInf);
  EXPECT_EQ(pulsora::log1p(kInf), kInf);
  EXPECT_EQ(pulsora::log1p(kTiny), kTiny);
  EXPECT_TRUE(std::signbit(pulsora::log1p(-0.0F)));
  EXPECT_TRUE(std::isnan(pulsora::log1p(-1.5F)));
  EXPECT_TRUE(std::isnan(pulsora::log1p(-kInf)));
  EXPECT_TRUE(std::isnan(pulsora::log1p(pulsora::kNaN)));
  EXPECT_EQ(pulsora::exp(0.0F), 1.0F);
  EXPECT_EQ(pulsora::exp(-kInf), 0.0F);
  EXPECT_EQ(pulsora::exp(-200.0F), 0.0F);
  EXPECT_EQ(pulsora::exp(-103.5F), kTiny);
  EXPECT_EQ(pulsora::exp(88.8F), kInf);
  EXPECT_EQ(pulsora::exp(kInf), kInf);
  EXPECT_TRUE(std::isnan(pulsora::exp(pulsora::kNaN)));
  EXPECT_EQ(pulsora::exp2Clamped(0.0F), 1.0F);
  EXPECT_EQ(pulsora::exp2Clamped(kInf), 0x1p120F);
  EXPECT_EQ(pulsora::exp2Clamped(-kInf), 0x1p-120F);
  EXPECT_EQ(pulsora::expm1(-kInf), -1.0F);
  EXPECT_EQ(pulsora::expm1(kInf), kInf);
  EXPECT_EQ(pulsora::expm1(1e-20F), 1e-20F);
  EXPECT_TRUE(std::signbit(pulsora::expm1(-0.0F)));
  EXPECT_TRUE(std::isnan(pulsora::expm1(pulsora::kNaN)));
  EXPECT_EQ(pulsora::tanh(kInf), 1.0F);
  EXPECT_EQ(pulsora::tanh(-kMax), -1.0F);
  EXPECT_TRUE(std::signbit(pulsora::tanh(-0.0F)));
  EXPECT_TRUE(std::isnan(pulsora::tanh(pulsora::kNaN)));
  EXPECT_TRUE(std::isnan(sineOf(kInf)));
  EXPECT_TRUE(std::isnan(cosineOf(pulsora::kNaN)));
  EXPECT_TRUE(std::isnan(pulsora::sqrt(-1.0F)));
}

TEST(Math, PowSpecialValues) {
  // The same table as std::pow for x >= 0.
  const std::vector<float> values = {0.0F, kTiny, 0.5F, 1.0F, 1.5F, 3e38F, kInf};
  for (const float x : values) {
    for (const float magnitude : {0.0F, 0.5F, 1.0F, 1000.0F, kInf, pulsora::kNaN}) {
      for (const float y : {magnitude, -magnitude}) {
        const float wanted = std::pow(x, y);
        const float got = pulsora::pow(x, y);
        if (std::isnan(wanted)) {
          EXPECT_TRUE(std::isnan(got)) << x << " ^ " << y;
        } else if (wanted == 0.0F || std::isinf(wanted) || wanted == 1.0F) {
          EXPECT_EQ(got, wanted) << x << " ^ " << y;
        } else {
          EXPECT_NEAR(got / wanted, 1.0F, 2e-7F) << x << " ^ " << y;
        }
      }
    }
  }
  EXPECT_TRUE(std::isnan(pulsora::pow(-1.0F, 2.0F)));
  EXPECT_TRUE(std::isnan(pulsora::pow(pulsora::kNaN, 2.0F)));
}

TEST(Math, RoundingAndOrder) {
  for (int i = -4000; i <= 4000; ++i) {
    const float x = static_cast<float>(i) * 0.125F;
    EXPECT_EQ(pulsora::rint(x), std::rint(x));
    EXPECT_EQ(pulsora::floor(x), std::floor(x));
    EXPECT_EQ(pulsora::abs(x), std::fabs(x));
    EXPECT_EQ(pulsora::copySign(2.0F, x), std::copysign(2.0F, x));
  }
  EXPECT_EQ(pulsora::rint(2.5F), 2.0F);
  EXPECT_EQ(pulsora::rint(3.5F), 4.0F);
  EXPECT_EQ(pulsora::fma(0x1.000002p0F, 0x1.000002p0F, -0x1.000004p0F), 0x1p-46F);
  EXPECT_EQ(pulsora::min(1.0F, 2.0F), 1.0F);
  EXPECT_EQ(pulsora::max(1.0F, 2.0F), 2.0F);
  EXPECT_EQ(pulsora::clamp(3.0F, -1.0F, 1.0F), 1.0F);
  EXPECT_EQ(pulsora::clamp(-3.0F, -1.0F, 1.0F), -1.0F);
  EXPECT_TRUE(std::isnan(pulsora::clamp(pulsora::kNaN, -1.0F, 1.0F)));
}

TEST(Math, Popcount) {
  uint32_t x = 1;
  for (int i = 0; i < 100000; ++i) {
    ASSERT_EQ(pulsora::popcount(x), static_cast<uint32_t>(__builtin_popcount(x))) << x;
    x = x * 1664525U + 1013904223U;
  }
  EXPECT_EQ(pulsora::popcount(0U), 0U);
  EXPECT_EQ(pulsora::popcount(0xFFFFFFFFU), 32U);
}

// The hash of 1e5 results: the same on every compiler, optimisation level and instruction set. Only
// NaN is left out.
template <class Function>
uint64_t goldenHash(Function function) {
  FnvHash hash;
  for (uint32_t i = 0; i < 100000; ++i) {
    const float y = function(pulsora::bitCast<float>(i * 42949U));
    hash.add(y == y ? y : 0.0F);
  }
  return hash.value();
}

TEST(Math, GoldenBits) {
  EXPECT_EQ(goldenHash([](float x) { return pulsora::log(x); }), 0x35BF83B0644C6B05U);
  EXPECT_EQ(goldenHash([](float x) { return pulsora::log1p(x); }), 0x027E14E27164E9E0U);
  EXPECT_EQ(goldenHash([](float x) { return pulsora::exp(x); }), 0x9784DB3B8C6F89CEU);
  EXPECT_EQ(goldenHash([](float x) { return pulsora::log2OfNormal(std::max(x, 1e-30F)); }),
            0x7714DC8B7181E829U);
  EXPECT_EQ(goldenHash([](float x) { return pulsora::exp2Clamped(x); }), 0xFEA9798D577993B0U);
  EXPECT_EQ(goldenHash([](float x) { return pulsora::expm1(x); }), 0xE2D02825DEC66466U);
  EXPECT_EQ(goldenHash([](float x) { return pulsora::tanh(x); }), 0x97935B7E3F78E2A4U);
  EXPECT_EQ(goldenHash([](float x) { return pulsora::pow(x, 1.7F); }), 0xD299BAC578A242CBU);
  EXPECT_EQ(goldenHash([](float x) { return pulsora::pow(0.7F, x); }), 0xAAA7A3EC64CBD3BDU);
  EXPECT_EQ(goldenHash(sineOf), 0x0A881D173AE49D4AU);
  EXPECT_EQ(goldenHash(cosineOf), 0x8A43687C226DDA30U);
  EXPECT_EQ(goldenHash([](float x) { return pulsora::sqrt(x); }), 0xFBB2AECCC3F5246AU);
}

}  // namespace
