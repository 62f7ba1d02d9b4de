#pragma once

#include <cstdint>

#include "core/platform.h"
#include "numerics/math.h"

namespace pulsora {

// IEEE 754 binary16 as a storage format: 11 significant bits, normal from 2^-14, subnormal steps of
// 2^-24.

constexpr float kHalfMax = 65504.0F;

/// A half as an element of a matrix or a Buffer; floatToHalf and halfToFloat convert its bits.
struct Half {
  uint16_t bits;
};

/// Nearest half, ties to even; beyond the range, infinities included, it saturates to +-65504. NaN
/// stays NaN.
PULSORA_HD uint16_t floatToHalf(float x) {
  const uint32_t bits = bitCast<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  const uint32_t limited = min(magnitude, bitCast<uint32_t>(kHalfMax));
  // Round away the 13 low bits to even, then move the exponent bias from 127 to 15.
  const uint32_t normal = (limited + 0xFFFU + ((limited >> 13) & 1U) - (112U << 23)) >> 13;
  // Below 2^-14 the addition of 1/2, whose last place is 2^-24, does the rounding.
  const uint32_t subnormal =
      bitCast<uint32_t>(bitCast<float>(limited) + 0.5F) - bitCast<uint32_t>(0.5F);
  const uint32_t finite = limited < 0x38800000U ? subnormal : normal;
  const uint32_t value = magnitude > 0x7F800000U ? 0x7E00U : finite;
  return static_cast<uint16_t>(value | ((bits >> 16) & 0x8000U));
}

/// The value of a half, exactly; infinities and NaN included.
PULSORA_HD float halfToFloat(uint16_t half) {
#if PULSORA_DEVICE_CODE
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
  return value;
#else
  const uint32_t bits = half;
  // Exponent and fraction moved into place make a float that is too small by the difference of the
  // biases, 2^112.
  const float scaled = bitCast<float>((bits & 0x7FFFU) << 13) * 0x1p112F;
  const uint32_t special = scaled >= 65536.0F ? 0x7F800000U : 0U;
  return bitCast<float>(bitCast<uint32_t>(scaled) | special | ((bits & 0x8000U) << 16));
#endif
}

}  // namespace pulsora
