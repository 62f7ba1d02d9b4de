#include "numerics/half.h"

#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>

namespace {

// The value of a half from its definition.
double valueOf(uint32_t half) {
  const int exponent = static_cast<int>((half >> 10) & 31U);
  const double fraction = half & 0x3FFU;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024.0 + fraction, exponent - 25);
  return (half & 0x8000U) != 0 ? -magnitude : magnitude;
}

TEST(Half, EveryHalfIsExactAndComesBack) {
  for (uint32_t half = 0; half < 65536; ++half) {
    const float value = pulsora::halfToFloat(static_cast<uint16_t>(half));
    const uint32_t magnitude = half & 0x7FFFU;
    if (magnitude > 0x7C00U) {
      EXPECT_TRUE(std::isnan(value)) << half;
      EXPECT_EQ(pulsora::floatToHalf(value), 0x7E00U | (half & 0x8000U));
    } else if (magnitude == 0x7C00U) {
      EXPECT_TRUE(std::isinf(value)) << half;
      EXPECT_EQ(pulsora::floatToHalf(value), 0x7BFFU | (half & 0x8000U));
    } else {
      EXPECT_EQ(static_cast<double>(value), valueOf(half)) << half;
      EXPECT_EQ(pulsora::floatToHalf(value), half);
    }
    EXPECT_EQ(std::signbit(value), (half & 0x8000U) != 0) << half;
  }
}

TEST(Half, RoundsToNearestEven) {
  // Around every pair of neighbours: below, at and above the middle.
  for (uint32_t half = 0; half < 0x7BFFU; ++half) {
    const double low = valueOf(half);
    const auto middle = static_cast<float>(0.5 * (low + valueOf(half + 1)));
    const uint32_t even = half + (half & 1U);
    EXPECT_EQ(pulsora::floatToHalf(middle), even) << half;
    EXPECT_EQ(pulsora::floatToHalf(-middle), even | 0x8000U) << half;
    EXPECT_EQ(pulsora::floatToHalf(std::nextafter(middle, 0.0F)), half) << half;
    EXPECT_EQ(pulsora::floatToHalf(std::nextafter(middle, 1e9F)), half + 1) << half;
  }
}

TEST(Half, Saturates) {
  EXPECT_EQ(pulsora::kHalfMax, pulsora::halfToFloat(0x7BFFU));
  for (const float x : {65504.0F, 65519.0F, 65520.0F, 1e30F, pulsora::kInfinity}) {
    EXPECT_EQ(pulsora::floatToHalf(x), 0x7BFFU);
    EXPECT_EQ(pulsora::floatToHalf(-x), 0xFBFFU);
  }
  EXPECT_EQ(pulsora::floatToHalf(std::numeric_limits<float>::denorm_min()), 0U);
}

#if defined(__FLT16_MANT_DIG__)
TEST(Half, AgreesWithTheCompilersHalf) {
  for (uint64_t bits = 0; bits <= 0xFFFFFFFFU; bits += 257) {
    const float x = pulsora::bitCast<float>(static_cast<uint32_t>(bits));
    if (std::fabs(x) < 65520.0F) {
      const auto wanted = pulsora::bitCast<uint16_t>(static_cast<_Float16>(x));
      ASSERT_EQ(pulsora::floatToHalf(x), wanted) << x;
      ASSERT_EQ(pulsora::halfToFloat(wanted), static_cast<float>(static_cast<_Float16>(x))) << x;
    }
  }
}
#endif

}  // namespace
