#pragma once

#include <cstdint>

#include "core/platform.h"
#include "numerics/half.h"
#include "numerics/math.h"

// The three number types of networks. All arithmetic is in float: widen() is exact, narrow() rounds
// once.

namespace pulsora {

/// A bfloat16 as an element of a matrix: the upper half of a float, 8 significant bits.
struct BFloat16 {
  uint16_t bits;
};

enum class ElementType { Float32, Float16, BFloat16 };

/// "float32", "float16" or "bfloat16".
inline const char *elementName(ElementType type) {
  switch (type) {
    case ElementType::Float32:
      return "float32";
    case ElementType::Float16:
      return "float16";
    case ElementType::BFloat16:
      return "bfloat16";
  }
  return "unknown";
}

inline int64_t elementBytes(ElementType type) { return type == ElementType::Float32 ? 4 : 2; }

template <class T>
struct ElementTypeOf;
template <>
struct ElementTypeOf<float> {
  static constexpr ElementType kType = ElementType::Float32;
};
template <>
struct ElementTypeOf<Half> {
  static constexpr ElementType kType = ElementType::Float16;
};
template <>
struct ElementTypeOf<BFloat16> {
  static constexpr ElementType kType = ElementType::BFloat16;
};

/// Calls body(T{}) with the type T of `type`.
template <class Body>
auto withElement(ElementType type, const Body &body) {
  if (type == ElementType::Float16) return body(Half{});
  if (type == ElementType::BFloat16) return body(BFloat16{});
  return body(float{});
}

PULSORA_HD float widen(float value) { return value; }
PULSORA_HD float widen(Half value) { return halfToFloat(value.bits); }
PULSORA_HD float widen(BFloat16 value) {
  return bitCast<float>(static_cast<uint32_t>(value.bits) << 16);
}

/// The nearest value of the type, ties to even; infinity beyond its range, as in torch (where
/// floatToHalf saturates).
template <class T>
PULSORA_HD T narrow(float value);
template <>
PULSORA_HD float narrow<float>(float value) {
  return value;
}
template <>
PULSORA_HD Half narrow<Half>(float value) {
  const uint32_t bits = bitCast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  // From 65520 on, the midpoint between the largest half and its would-be successor.
  const bool overflows = magnitude >= 0x477FF000U && magnitude <= 0x7F800000U;
  const uint32_t infinity = 0x7C00U | ((bits >> 16) & 0x8000U);
  return Half{overflows ? static_cast<uint16_t>(infinity) : floatToHalf(value)};
}
template <>
PULSORA_HD BFloat16 narrow<BFloat16>(float value) {
  const uint32_t bits = bitCast<uint32_t>(value);
  const bool isNan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  const uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  return BFloat16{static_cast<uint16_t>(isNan ? (bits >> 16) | 0x40U : rounded)};
}

}  // namespace pulsora
