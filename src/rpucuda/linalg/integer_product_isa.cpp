#include "linalg/integer_kernel.h"

#ifdef __SSE2__
#include <immintrin.h>
#endif

// Compiled once per instruction set. Everything here is in an anonymous namespace and nothing comes
// from the standard library (see gemm_isa.cpp).

namespace pulsora {
namespace {

#if defined(__AVX512BW__)

using Integers = __m512i;  // of 32 bits, or pairs of 16
using Floats = __m512;
constexpr int kLanes = 16;
#ifdef __AVX512VNNI__
constexpr int kRows = 8;  // 8 x 2 accumulators; g++ 12 keeps no more of them in registers
Integers addPairs(Integers acc, Integers a, Integers b) { return _mm512_dpwssd_epi32(acc, a, b); }
#else
constexpr int kRows = 8;
Integers addPairs(Integers acc, Integers a, Integers b) {
  return _mm512_add_epi32(acc, _mm512_madd_epi16(a, b));
}
#endif
Integers zero() { return _mm512_setzero_si512(); }
Integers load(const int16_t *p) { return _mm512_loadu_si512(p); }
void save(int16_t *p, Integers v) { _mm512_storeu_si512(p, v); }
Integers everywhere(int32_t i) { return _mm512_set1_epi32(i); }
Floats loadFloats(const float *p) { return _mm512_loadu_ps(p); }
Floats everywhere(float f) { return _mm512_set1_ps(f); }
// With a full mask these are plain instructions. (In some g++ the unmasked forms warn of
// uninitialised values.)
constexpr __mmask16 kAll = 0xFFFF;
Integers rounded(Floats v, Floats low, Floats high) {
  const Floats inside = _mm512_maskz_min_ps(kAll, _mm512_maskz_max_ps(kAll, v, low), high);
  return _mm512_maskz_cvtps_epi32(kAll, inside);
}
Floats times(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
Integers plus(Integers a, Integers b) { return _mm512_add_epi32(a, b); }
Integers minus(Integers a, Integers b) { return _mm512_sub_epi32(a, b); }
Integers shiftedDown(Integers a) { return _mm512_maskz_srai_epi32(kAll, a, 12); }
Integers shiftedUp(Integers a) { return _mm512_maskz_slli_epi32(kAll, a, 12); }
Integers pairOf(Integers first, Integers second) {
  return _mm512_mask_blend_epi16(0xAAAAAAAA, first, _mm512_maskz_slli_epi32(kAll, second, 16));
}
/// acc[0 .. kLanes) += low + factor * high.
void widen(double *acc, Integers low, Integers high, double factor) {
  const auto add = [&](double *to, __m256i l, __m256i h) {
    const __m512d sum = _mm512_add_pd(_mm512_loadu_pd(to), _mm512_maskz_cvtepi32_pd(0xFF, l));
    const __m512d product =
        _mm512_mul_pd(_mm512_set1_pd(factor), _mm512_maskz_cvtepi32_pd(0xFF, h));
    _mm512_storeu_pd(to, _mm512_add_pd(sum, product));
  };
  add(acc, _mm512_castsi512_si256(low), _mm512_castsi512_si256(high));
  add(acc + 8, _mm512_maskz_extracti64x4_epi64(0xFF, low, 1),
      _mm512_maskz_extracti64x4_epi64(0xFF, high, 1));
}

#elif defined(__AVX2__)

using Integers = __m256i;
using Floats = __m256;
constexpr int kLanes = 8;
constexpr int kRows = 4;  // 4 x 2 accumulators of 16 registers, see above
Integers zero() { return _mm256_setzero_si256(); }
Integers load(const int16_t *p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)); }
void save(int16_t *p, Integers v) { _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), v); }
Integers everywhere(int32_t i) { return _mm256_set1_epi32(i); }
Integers addPairs(Integers acc, Integers a, Integers b) {
  return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
}
Floats loadFloats(const float *p) { return _mm256_loadu_ps(p); }
Floats everywhere(float f) { return _mm256_set1_ps(f); }
Integers rounded(Floats v, Floats low, Floats high) {
  return _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(v, low), high));
}
Floats times(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
Integers plus(Integers a, Integers b) { return _mm256_add_epi32(a, b); }
Integers minus(Integers a, Integers b) { return _mm256_sub_epi32(a, b); }
Integers shiftedDown(Integers a) { return _mm256_srai_epi32(a, 12); }
Integers shiftedUp(Integers a) { return _mm256_slli_epi32(a, 12); }
Integers pairOf(Integers first, Integers second) {
  return _mm256_blend_epi16(first, _mm256_slli_epi32(second, 16), 0xAA);
}
void widen(double *acc, Integers low, Integers high, double factor) {
  const auto add = [&](double *to, __m128i l, __m128i h) {
    const __m256d sum = _mm256_add_pd(_mm256_loadu_pd(to), _mm256_cvtepi32_pd(l));
    const __m256d product = _mm256_mul_pd(_mm256_set1_pd(factor), _mm256_cvtepi32_pd(h));
    _mm256_storeu_pd(to, _mm256_add_pd(sum, product));
  };
  add(acc, _mm256_castsi256_si128(low), _mm256_castsi256_si128(high));
  add(acc + 4, _mm256_extracti128_si256(low, 1), _mm256_extracti128_si256(high, 1));
}

#elif defined(__SSE4_1__)

using Integers = __m128i;
using Floats = __m128;
constexpr int kLanes = 4;
constexpr int kRows = 3;
Integers zero() { return _mm_setzero_si128(); }
Integers load(const int16_t *p) { return _mm_loadu_si128(reinterpret_cast<const __m128i *>(p)); }
void save(int16_t *p, Integers v) { _mm_storeu_si128(reinterpret_cast<__m128i *>(p), v); }
Integers everywhere(int32_t i) { return _mm_set1_epi32(i); }
Integers addPairs(Integers acc, Integers a, Integers b) {
  return _mm_add_epi32(acc, _mm_madd_epi16(a, b));
}
Floats loadFloats(const float *p) { return _mm_loadu_ps(p); }
Floats everywhere(float f) { return _mm_set1_ps(f); }
Integers rounded(Floats v, Floats low, Floats high) {
  return _mm_cvtps_epi32(_mm_min_ps(_mm_max_ps(v, low), high));
}
Floats times(Floats a, Floats b) { return _mm_mul_ps(a, b); }
Integers plus(Integers a, Integers b) { return _mm_add_epi32(a, b); }
Integers minus(Integers a, Integers b) { return _mm_sub_epi32(a, b); }
Integers shiftedDown(Integers a) { return _mm_srai_epi32(a, 12); }
Integers shiftedUp(Integers a) { return _mm_slli_epi32(a, 12); }
Integers pairOf(Integers first, Integers second) {
  return _mm_blend_epi16(first, _mm_slli_epi32(second, 16), 0xAA);
}
void widen(double *acc, Integers low, Integers high, double factor) {
  const auto add = [&](double *to, __m128i l, __m128i h) {
    const __m128d sum = _mm_add_pd(_mm_loadu_pd(to), _mm_cvtepi32_pd(l));
    const __m128d product = _mm_mul_pd(_mm_set1_pd(factor), _mm_cvtepi32_pd(h));
    _mm_storeu_pd(to, _mm_add_pd(sum, product));
  };
  add(acc, low, high);
  add(acc + 2, _mm_unpackhi_epi64(low, low), _mm_unpackhi_epi64(high, high));
}

#endif

/// The levels of a pair of inputs as one number.
int32_t pairAt(const int16_t *levels) {
  int32_t pair;
  __builtin_memcpy(&pair, levels, sizeof pair);
  return pair;
}

#ifdef __SSE4_1__

template <int kDigits, int R>
void micro(int64_t pairs, const int16_t *levels, int64_t levelRow, const int16_t *digits,
           double *acc) {
  Integers sum[R][kDigits];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int d = 0; d < kDigits; ++d) sum[r][d] = zero();
  }
  for (int64_t k = 0; k < pairs; ++k) {
    Integers digit[kDigits];
#pragma GCC unroll 2
    for (int d = 0; d < kDigits; ++d) digit[d] = load(digits + d * 2 * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Integers pair = everywhere(pairAt(levels + r * levelRow));
#pragma GCC unroll 2
      for (int d = 0; d < kDigits; ++d) sum[r][d] = addPairs(sum[r][d], pair, digit[d]);
    }
    levels += 2;
    digits += 2 * kDigits * kLanes;
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
    widen(acc + r * kLanes, sum[r][0], kDigits == 2 ? sum[r][kDigits - 1] : zero(), 4096.0);
}

void makeDigits(const IntegerWeights &integers, int count, int64_t pairs, const float *weights,
                int64_t row, int16_t *digits) {
  const Floats scale = everywhere(integers.scale);
  const Floats low = everywhere(-integers.largest);
  const Floats high = everywhere(integers.largest);
  const Integers half = everywhere(2048);
  for (int64_t k = 0; k < pairs; ++k, weights += 2 * row) {
    const Integers first = rounded(times(loadFloats(weights), scale), low, high);
    const Integers second = rounded(times(loadFloats(weights + row), scale), low, high);
    if (count == 1) {
      save(digits, pairOf(first, second));
      digits += 2 * kLanes;
      continue;
    }
    const Integers highFirst = shiftedDown(plus(first, half));
    const Integers highSecond = shiftedDown(plus(second, half));
    save(digits, pairOf(minus(first, shiftedUp(highFirst)), minus(second, shiftedUp(highSecond))));
    save(digits + 2 * kLanes, pairOf(highFirst, highSecond));
    digits += 4 * kLanes;
  }
}

#else

constexpr int kLanes = 4;
constexpr int kRows = 4;

template <int kDigits, int R>
void micro(int64_t pairs, const int16_t *levels, int64_t levelRow, const int16_t *digits,
           double *acc) {
  constexpr double kFactors[] = {1.0, 4096.0};
  for (int64_t k = 0; k < pairs; ++k, levels += 2) {
    for (int d = 0; d < kDigits; ++d, digits += 2 * kLanes) {
      for (int r = 0; r < R; ++r) {
        for (int l = 0; l < kLanes; ++l) {
          const int16_t *n = levels + r * levelRow;
          acc[r * kLanes + l] += kFactors[d] * (n[0] * digits[2 * l] + n[1] * digits[2 * l + 1]);
        }
      }
    }
  }
}

void makeDigits(const IntegerWeights &integers, int count, int64_t pairs, const float *weights,
                int64_t row, int16_t *digits) {
  for (int64_t k = 0; k < pairs; ++k, weights += 2 * row, digits += 2 * count * kLanes) {
    for (int i = 0; i < 2 * kLanes; ++i) {
      const int32_t v = integerOf(integers, weights[i / kLanes * row + i % kLanes]);
      const int32_t high = count == 2 ? (v + 2048) >> 12 : 0;
      int16_t *to = digits + 2 * (i % kLanes) + i / kLanes;
      to[0] = static_cast<int16_t>(v - high * 4096);
      if (count == 2) to[2 * kLanes] = static_cast<int16_t>(high);
    }
  }
}

#endif

void store(const double *acc, int64_t rows, int64_t cols, float unit, float *out, int64_t outRow,
           int64_t outCol) {
  for (int64_t r = 0; r < rows; ++r) {
    const double *from = acc + r * kLanes;
    float *to = out + r * outRow;
    if (outCol == 1 && cols == kLanes) {  // literal bounds make vector loads
      for (int l = 0; l < kLanes; ++l) to[l] = static_cast<float>(from[l]) * unit;
    } else {
      for (int64_t l = 0; l < cols; ++l) to[l * outCol] = static_cast<float>(from[l]) * unit;
    }
  }
}

template <int R>
void listKernels(IntegerKernel &kernel) {
  kernel.micro[0][R - 1] = micro<1, R>;
  kernel.micro[1][R - 1] = micro<2, R>;
  if constexpr (R > 1) listKernels<R - 1>(kernel);
}

IntegerKernel makeKernel() {
  IntegerKernel kernel{};
  kernel.lanes = kLanes;
  kernel.maxRows = kRows;
  listKernels<kRows>(kernel);
  kernel.makeDigits = makeDigits;
  kernel.store = store;
  return kernel;
}

}  // namespace

template <>
const IntegerKernel &integerKernel<Isa::PULSORA_ISA>() {
  static const IntegerKernel kernel = makeKernel();
  return kernel;
}

}  // namespace pulsora
