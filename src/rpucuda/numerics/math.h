#pragma once

#include <cstdint>
#include <limits>

#include "core/platform.h"

namespace pulsora {

// Elementary functions with equal bits on every compiler, instruction set and GPU: built from the
// correctly rounded operations + - * / sqrt and explicit fma alone, free of branches so that loops
// over them vectorise. Compile with -ffp-contract=off (nvcc: --fmad=false). The sign and payload of
// a NaN are unspecified. "Max ulp" is the largest error measured against double precision over
// every 61st float of the range (normal results), in units of the last place of the result; the
// tests repeat the measurement on coarser grids. The polynomials are minimax fits, weighted for the
// error of the result, with coefficients rounded one by one.

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// The bits of `from` as a `To` of the same size.
template <class To, class From>
PULSORA_HD To bitCast(From from) {
  static_assert(sizeof(To) == sizeof(From), "bitCast keeps the size");
  To to;
  PULSORA_MEMCPY(&to, &from, sizeof(to));
  return to;
}

/// a * b + c, rounded once.
PULSORA_HD float fma(float a, float b, float c) {
#if PULSORA_DEVICE_CODE
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

PULSORA_HD double fma(double a, double b, double c) {
#if PULSORA_DEVICE_CODE
  return __fma_rn(a, b, c);
#else
  return __builtin_fma(a, b, c);
#endif
}

/// Correctly rounded square root; NaN below zero.
PULSORA_HD float sqrt(float x) {
#if PULSORA_DEVICE_CODE
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}

PULSORA_HD double sqrt(double x) {
#if PULSORA_DEVICE_CODE
  return __dsqrt_rn(x);
#else
  return __builtin_sqrt(x);
#endif
}

/// sqrt(x) for 2^-100 <= x <= 2^100, with the bits of sqrt() (compared for every float of the range
/// on sm_90); on a GPU five instructions, without the branch of sqrt().
PULSORA_HD float sqrtOfNormal(float x) {
#if PULSORA_DEVICE_CODE
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  const float root = x * y;
  return fma(fma(-root, root, x), 0.5F * y, root);
#else
  return __builtin_sqrtf(x);
#endif
}

/// x / y for 2^-60 <= abs(y) <= 2^60 and abs(x) <= 2^60 that is 0 or at least 2^-100, with the bits
/// of a division but for the sign of zero. On a GPU these are the instructions of `/` without its
/// branch: a quotient corrected by the exact remainder (Markstein, IBM J. Res. Dev. 34:111, 1990).
PULSORA_HD float quotientOfNormal(float x, float y) {
#if PULSORA_DEVICE_CODE
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(y));
  inverse = fma(fma(-y, inverse, 1.0F), inverse, inverse);
  const float quotient = x * inverse;
  return fma(fma(-y, quotient, x), inverse, quotient);
#else
  return x / y;
#endif
}

/// Largest integer <= x.
PULSORA_HD float floor(float x) {
#if PULSORA_DEVICE_CODE
  return ::floorf(x);
#else
  return __builtin_floorf(x);
#endif
}

/// Nearest integer, ties to the even one.
PULSORA_HD float rint(float x) {
#if PULSORA_DEVICE_CODE
  return ::rintf(x);
#else
  return __builtin_rintf(x);
#endif
}

PULSORA_HD float abs(float x) { return bitCast<float>(bitCast<uint32_t>(x) & 0x7FFFFFFFU); }

/// Neither infinite nor NaN.
PULSORA_HD bool isFinite(float x) { return (bitCast<uint32_t>(x) & 0x7F800000U) != 0x7F800000U; }

/// |magnitude| with the sign of `sign`.
PULSORA_HD float copySign(float magnitude, float sign) {
  return bitCast<float>((bitCast<uint32_t>(magnitude) & 0x7FFFFFFFU) |
                        (bitCast<uint32_t>(sign) & 0x80000000U));
}

/// `yes` if `condition`, else `no`; both are evaluated.
template <class T>
PULSORA_HD T select(bool condition, T yes, T no) {
  return condition ? yes : no;
}

/// The smaller one; `a` if they are equal or either is NaN.
template <class T>
PULSORA_HD T min(T a, T b) {
  return b < a ? b : a;
}

/// The larger one; `a` if they are equal or either is NaN.
template <class T>
PULSORA_HD T max(T a, T b) {
  return a < b ? b : a;
}

/// min and max for values that are only compared: which of two zeros is returned is unspecified,
/// and a GPU has an instruction for it.
PULSORA_HD float minForCompare(float a, float b) {
#if PULSORA_DEVICE_CODE
  return ::fminf(a, b);
#else
  return a < b ? a : b;
#endif
}
PULSORA_HD float maxForCompare(float a, float b) {
#if PULSORA_DEVICE_CODE
  return ::fmaxf(a, b);
#else
  return a > b ? a : b;
#endif
}

/// x limited to [low, high], two numbers that are not zero; NaN becomes low. A GPU has two
/// instructions for it.
PULSORA_HD float limit(float x, float low, float high) {
  return minForCompare(maxForCompare(x, low), high);
}

/// x limited to [low, high]; NaN stays NaN. Needs low <= high.
template <class T>
PULSORA_HD T clamp(T x, T low, T high) {
  return min(max(x, low), high);
}

/// Number of set bits.
PULSORA_HD uint32_t popcount(uint32_t x) {
#if PULSORA_DEVICE_CODE
  return static_cast<uint32_t>(__popc(x));
#elif defined(__AVX512VPOPCNTDQ__)
  return static_cast<uint32_t>(__builtin_popcount(x));
#else
  // Sums in fields of 2, 4, 8, 16 bits. The usual last step, a multiplication, would be turned into
  // a popcnt instruction, which does not vectorise.
  x -= (x >> 1) & 0x55555555U;
  x = (x & 0x33333333U) + ((x >> 2) & 0x33333333U);
  x = (x + (x >> 4)) & 0x0F0F0F0FU;
  x += x >> 8;
  return (x + (x >> 16)) & 0x3FU;
#endif
}

/// c0 + c1 x + c2 x^2 + ... by Horner's rule with fma.
template <class... Coefficients>
PULSORA_HD float polynomial(float x, float c0, Coefficients... rest) {
  if constexpr (sizeof...(rest) == 0) {
    return c0;
  } else {
    return fma(x, polynomial(x, rest...), c0);
  }
}

/// A number as the unevaluated sum hi + lo, with hi the rounded sum.
struct FloatPair {
  float hi;
  float lo;
};

namespace detail {

// ln 2 in two parts; multiples of kLn2Hi (15 bits) by an exponent are exact.
constexpr float kLn2Hi = 0x1.62e4p-1F;
constexpr float kLn2Lo = 0x1.7f7d1cp-20F;

// Round-to-integer by addition: the low bits of x + kRoundShift hold the integer, for |x| < 2^22.
constexpr float kRoundShift = 0x1.8p23F;

/// 2^n for -126 <= n <= 127.
PULSORA_HD float exp2Int(int32_t n) { return bitCast<float>(static_cast<uint32_t>(n + 127) << 23); }

/// ln(2^power x (1 + relative)) for normal x > 0 and abs(relative) < 2^-22; relative error of hi +
/// lo below 4.1e-9.
PULSORA_HD FloatPair logPairOfNormal(float x, float power, float relative) {
  const uint32_t bits = bitCast<uint32_t>(x) + (0x3F800000U - 0x3F3504F3U);
  const float exponent = static_cast<float>(static_cast<int32_t>(bits >> 23) - 127) + power;
  const float m = bitCast<float>((bits & 0x007FFFFFU) + 0x3F3504F3U);  // in [sqrt(1/2), sqrt(2))
  // ln m = 2 artanh(s), s = (m - 1) / (m + 1) in [-0.1716, 0.1716], s and m + 1 carried in two
  // parts each.
  const float numerator = m - 1.0F;
  const float denominator = m + 1.0F;
  const float denominatorLo = m - (denominator - 1.0F);
  const float s = quotientOfNormal(numerator, denominator);
  const float sLo =
      quotientOfNormal(fma(-s, denominatorLo, fma(-s, denominator, numerator)), denominator);
  const float z = s * s;
  // (2 artanh(s) - 2 s) / s^3 on z in [0, 0.02944], relative error of the logarithm 5e-12.
  const float series =
      polynomial(z, 0x1.555554p-1F, 0x1.999c26p-2F, 0x1.23d3e0p-2F, 0x1.f13b22p-3F);
  const float large = exponent * kLn2Hi;
  const float sum = large + 2.0F * s;
  const float lost = (large - sum) + 2.0F * s;
  const float small = lost + fma(exponent, kLn2Lo, fma(s * z, series, fma(2.0F, sLo, relative)));
  const float hi = sum + small;
  return {hi, (sum - hi) + small};
}

/// ln(x (1 + relative)) for finite x > 0, likewise.
PULSORA_HD FloatPair logPair(float x, float relative) {
  const bool tiny = x < 0x1p-126F;
  return logPairOfNormal(tiny ? x * 0x1p23F : x, tiny ? -23.0F : 0.0F, relative);
}

/// exp(x) = 2^n (1 + p).
struct ExpParts {
  float p;
  int32_t n;
};

/// Parts of exp(hi + lo) for -104 <= hi <= 89, abs(lo) <= 2^-16; p in [-0.2931, 0.4145].
PULSORA_HD ExpParts expParts(float hi, float lo) {
  const float shifted = fma(hi, 0x1.715476p0F, kRoundShift);
  const float n = shifted - kRoundShift;
  const float r = fma(-n, kLn2Hi, hi) + fma(-n, kLn2Lo, lo);
  // (e^r - 1 - r) / r^2 on [-0.347, 0.347], error 3.1e-9 relative to e^r.
  const float series = polynomial(r, 0x1.fffffcp-2F, 0x1.55548cp-3F, 0x1.55585ap-5F, 0x1.123d5cp-7F,
                                  0x1.6ab784p-10F);
  return {fma(r * r, series, r),
          static_cast<int32_t>(bitCast<uint32_t>(shifted) - bitCast<uint32_t>(kRoundShift))};
}

/// 2^n (1 + p), rounded into the subnormals or to infinity where it must.
PULSORA_HD float joinExp(ExpParts parts) {
  const int32_t half = parts.n >> 1;
  return (1.0F + parts.p) * exp2Int(half) * exp2Int(parts.n - half);
}

}  // namespace detail

/// Natural logarithm. log(0) = -inf, NaN below. Max ulp 0.54.
PULSORA_HD float log(float x) {
  const float value = detail::logPair(x, 0.0F).hi;
  const float special = x == 0.0F ? -kInfinity : (x > 0.0F ? x : kNaN);
  return x > 0.0F && x < kInfinity ? value : special;
}

/// log2(x) of a normal x > 0 in a third of the instructions of log(), for measured curves. Absolute
/// error below 4.2e-7 and half a unit in the last place.
PULSORA_HD float log2OfNormal(float x) {
  const uint32_t bits = bitCast<uint32_t>(x);
  // The exponent's field in the low bits of a number of [2^23, 2^24); the mantissa less 1.
  const float exponent = bitCast<float>((bits >> 23) | 0x4B000000U) - (0x1p23F + 127.0F);
  const float t = bitCast<float>((bits & 0x007FFFFFU) | 0x3F800000U) - 1.0F;
  // log2(1 + t) / t on [0, 1], minimax for the error of the logarithm.
  const float series = polynomial(t, 0x1.7152aep0F, -0x1.70f094p-1F, 0x1.e4eb3p-2F, -0x1.4db94p-2F,
                                  0x1.8dea2ep-3F, -0x1.45de54p-4F, 0x1.fce264p-7F);
  return fma(t, series, exponent);
}

/// ln(1 + x), accurate near 0. log1p(-1) = -inf, NaN below. Max ulp 0.66.
PULSORA_HD float log1p(float x) {
  const float u = 1.0F + x;
  const float lost = x - (u - 1.0F);
  const float value = detail::logPair(u, lost / u).hi;
  const float special = x == 0.0F || x == kInfinity ? x : (x == -1.0F ? -kInfinity : kNaN);
  return x > -1.0F && x < kInfinity && x != 0.0F ? value : special;
}

/// e^x; 0 below -103.98, infinity above 88.73. Max ulp 1.01.
PULSORA_HD float exp(float x) {
  return detail::joinExp(detail::expParts(clamp(x, -104.0F, 89.0F), 0.0F));
}

/// 2^x for abs(x) <= 120 in half the instructions of exp(). Max ulp 2.03.
PULSORA_HD float exp2OfBounded(float x) {
  const float shifted = x + detail::kRoundShift;
  const float f = x - (shifted - detail::kRoundShift);
  // 2^f on [-1/2, 1/2], minimax, error 1.1e-7. The low bits of `shifted` are the integer part.
  const float power = polynomial(f, 1.0F, 0x1.62e42ap-1F, 0x1.ebf9bcp-3F, 0x1.c6b752p-5F,
                                 0x1.3cea88p-7F, 0x1.5bba1ap-10F);
  return bitCast<float>(bitCast<uint32_t>(power) + (bitCast<uint32_t>(shifted) << 23));
}

/// exp2OfBounded() of any x, for device steps; x beyond +-120 counts as +-120.
PULSORA_HD float exp2Clamped(float x) { return exp2OfBounded(clamp(x, -120.0F, 120.0F)); }

/// e^x - 1, accurate near 0. Max ulp 1.42.
PULSORA_HD float expm1(float x) {
  const detail::ExpParts parts = detail::expParts(clamp(x, -40.0F, 89.0F), 0.0F);
  const float half = detail::exp2Int(parts.n - 1);  // half the scale, because 2^128 is no float
  const float value = 2.0F * fma(half, parts.p, half - 0.5F);
  return x == 0.0F ? x : value;
}

/// x^y for x >= 0 (NaN for x < 0). x^0 = 1^y = 1, 0^y = 0 or infinity. Max ulp 1.1 for abs(y) <=
/// 10, 1.4 for abs(y) <= 30, 5.6 where y ln x nears the ends of the range.
PULSORA_HD float pow(float x, float y) {
  const FloatPair finite = detail::logPair(x, 0.0F);
  const float logX = x == 0.0F ? -kInfinity : (x == kInfinity ? x : finite.hi);
  const float exponent = y * logX;
  const bool inside = abs(exponent) < 128.0F;
  const float lo = inside ? fma(y, finite.hi, -exponent) + y * finite.lo : 0.0F;
  const float value = detail::joinExp(detail::expParts(clamp(exponent, -104.0F, 89.0F), lo));
  const float defined = x >= 0.0F ? value : kNaN;
  return y == 0.0F || x == 1.0F ? 1.0F : defined;
}

/// Hyperbolic tangent. Max ulp 2.52.
PULSORA_HD float tanh(float x) {
  const float e = expm1(2.0F * min(abs(x), 10.0F));  // tanh(10) rounds to 1
  return copySign(e / (e + 2.0F), x);
}

/// Sine and cosine of an angle given in turns (1 = 360 degrees); exact at multiples of 1/4. NaN for
/// infinity. Max ulp 0.97 for abs(turns) <= 1/8, absolute error below 5.1e-8 everywhere.
PULSORA_HD void sinCosTurns(float turns, float *sine, float *cosine) {
  const float inTurn = turns - rint(turns);  // exact, in [-1/2, 1/2]
  const float shifted = fma(inTurn, 4.0F, detail::kRoundShift);
  const uint32_t quarter = bitCast<uint32_t>(shifted);
  const float f = fma(shifted - detail::kRoundShift, -0.25F, inTurn);  // exact, in [-1/8, 1/8]
  const float y = f * f;
  // (sin(2 pi f) - 2 pi f) / f^3 on y in [0, 1/64], error of the sine 3.1e-11; 2 pi in two parts.
  const float sineSeries =
      polynomial(y, -0x1.4abbcep5F, 0x1.466b78p6F, -0x1.32adccp6F, 0x1.44510cp5F);
  const float s = fma(f, 0x1.921fb6p2F, fma(f, -0x1.777a5cp-23F, f * y * sineSeries));
  // (cos(2 pi f) - 1) / f^2, error of the cosine 5.4e-11.
  const float c = polynomial(y, 1.0F, -0x1.3bd3ccp4F, 0x1.03c1aep6F, -0x1.55b146p6F, 0x1.d47d48p5F);
  const bool swap = (quarter & 1U) != 0;
  const uint32_t sineSign = (quarter & 2U) << 30;
  const uint32_t cosineSign = ((quarter + 1U) & 2U) << 30;
  *sine = bitCast<float>(bitCast<uint32_t>(swap ? c : s) ^ sineSign);
  *cosine = bitCast<float>(bitCast<uint32_t>(swap ? s : c) ^ cosineSign);
}

}  // namespace pulsora
