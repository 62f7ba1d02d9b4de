#pragma once

#include <cstdint>

#include "core/platform.h"
#include "numerics/math.h"

// Matrices of integers: a weight w becomes v = rint(w 2^(F - e)), and an input is the level n of a
// converter. Their sum of products has one value, whatever the order in which it is added up, as
// long as its magnitude stays below 2^53 (docs/reference/io.md, "The product in integers").

namespace pulsora {

/// The weights of one array as integers of `bits` bits, sign included: F = bits - 1 bits for the
/// magnitude, and 2^e above every weight.
struct IntegerWeights {
  int bits = 0;          ///< 24 or 16; 0: there are no such integers
  float scale = 0.0f;    ///< 2^(F - e)
  float step = 0.0f;     ///< 2^(e - F)
  float largest = 0.0f;  ///< 2^F - 1

  PULSORA_HD bool exist() const { return bits > 0; }
};

/// Integers of `bits` bits for weights of at most `bound`: e is the smallest number for which no
/// weight is rounded to 2^F. None if `bound` is not finite, or beyond 2^96.
IntegerWeights integerWeights(int bits, double bound);

/// v for a weight w. Weights beyond the bound saturate.
PULSORA_HD int32_t integerOf(const IntegerWeights &i, float w) {
  const float v = minForCompare(maxForCompare(w * i.scale, -i.largest), i.largest);
#if PULSORA_DEVICE_CODE
  return __float2int_rn(v);
#else
  return static_cast<int32_t>(rint(v));
#endif
}

/// The sum S of integers as a number: rounded to single precision, then multiplied by `unit`.
PULSORA_HD float valueOf(int64_t sum, float unit) { return static_cast<float>(sum) * unit; }

/// Bits of the magnitude of an exact sum: a double, and all ways of adding one up, hold 2^53.
constexpr int kExactBits = 53;
/// The largest level that integer products take: with its sign, an input has 15 bits.
constexpr int32_t kLargestLevel = (1 << 14) - 1;

/// Whether sums over `terms` products with inputs of at most `level` are exact.
inline bool areExact(const IntegerWeights &i, int64_t terms, int32_t level) {
  return terms < (int64_t{1} << (kExactBits - (i.bits - 1))) / level;
}

}  // namespace pulsora
