#pragma once

#include "numerics/math.h"

namespace pulsora {

/// Divides many numbers by one, by multiplications with the bits of a division. Source: Markstein,
/// "Computation of elementary functions on the IBM RISC System/6000 processor", IBM J. Res. Dev.
/// 34:111 (1990): with the rounded inverse and a quotient that is off by at most a last place, one
/// correction by the exact remainder gives the rounded quotient.
class Divisor {
 public:
  /// For numbers of magnitudes up to `largest`.
  PULSORA_HD Divisor(float value, float largest)
      : value_(value),
        inverse_(1.0f / value),
        isPlain_(value >= 0x1p-60f && value <= 0x1p60f && largest <= 0x1p60f) {}

  /// Whether quotient() may be used: no number of the calculation is too large or too small.
  PULSORA_HD bool isPlain() const { return isPlain_; }
  PULSORA_HD float value() const { return value_; }
  /// x / value(). An x below 2^-100 in magnitude may give any number below 2^-39, and -0 gives 0.
  PULSORA_HD float quotient(float x) const {
    float q = x * inverse_;
    for (int i = 0; i < 2; ++i) q = fma(fma(-q, value_, x), inverse_, q);
    return q;
  }

 private:
  float value_;
  float inverse_;
  bool isPlain_;
};

}  // namespace pulsora
