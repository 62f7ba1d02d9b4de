#include "numerics/divisor.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

namespace pulsora {
namespace {

/// A float of random bits whose exponent lies in [lowest, highest].
float number(std::mt19937 &generator, int lowest, int highest) {
  const auto bits = static_cast<uint32_t>(generator());
  const float mantissa = bitCast<float>((bits & 0x807FFFFFU) | 0x3F800000U);
  return std::ldexp(mantissa, std::uniform_int_distribution<int>(lowest, highest)(generator));
}

TEST(Divisor, HasTheBitsOfADivision) {
  std::mt19937 generator(1);
  for (int i = 0; i < 2000; ++i) {
    const Divisor divisor(std::abs(number(generator, -60, 59)), 0x1p60f);
    ASSERT_TRUE(divisor.isPlain());
    for (int j = 0; j < 1000; ++j) {
      const float x = number(generator, -100, 59);
      ASSERT_EQ(divisor.quotient(x), x / divisor.value()) << x << " / " << divisor.value();
    }
  }
}

TEST(Divisor, MantissasAtTheEdgesAreNoException) {
  for (const uint32_t b : {0x3F800000U, 0x3F800001U, 0x3FFFFFFFU, 0x3FFFFFFEU, 0x3FAAAAABU}) {
    const Divisor divisor(bitCast<float>(b), 4.0f);
    for (uint32_t a = 0x3F800000U; a < 0x40000000U; a += 7)
      ASSERT_EQ(divisor.quotient(bitCast<float>(a)), bitCast<float>(a) / divisor.value()) << a;
  }
}

TEST(Divisor, SmallNumbersStaySmall) {
  std::mt19937 generator(2);
  for (int i = 0; i < 100000; ++i) {
    const Divisor divisor(std::abs(number(generator, -60, 59)), 1.0f);
    const float q = divisor.quotient(number(generator, -149, -101));
    ASSERT_LT(std::abs(q), 0x1p-39f);
  }
  EXPECT_EQ(Divisor(3.0f, 1.0f).quotient(0.0f), 0.0f);
}

TEST(Divisor, OthersAreDivided) {
  EXPECT_FALSE(Divisor(0x1p-61f, 1.0f).isPlain());
  EXPECT_FALSE(Divisor(0x1p61f, 1.0f).isPlain());
  EXPECT_FALSE(Divisor(1.0f, 0x1p61f).isPlain());
  EXPECT_FALSE(Divisor(kNaN, 1.0f).isPlain());
  EXPECT_FALSE(Divisor(1.0f, kNaN).isPlain());
  EXPECT_FALSE(Divisor(1.0f, kInfinity).isPlain());
  EXPECT_FALSE(Divisor(0.0f, 0.0f).isPlain());
}

}  // namespace
}  // namespace pulsora
