#pragma once

#include <cstdint>

#ifdef __SSE2__
#include <immintrin.h>
#endif

// Vectors of integers of an instruction set, for integer_product_isa.cpp alone, and the sizes of
// its loops. Everything is in an anonymous namespace (see gemm_isa.cpp).

namespace pulsora {
namespace {

#if defined(__AVX512BW__)

using Integers = __m512i;  // of 32 bits, or pairs of 16
using Floats = __m512;
using Doubles = __m512d;  // of half the lanes
constexpr int kLanes = 16;
constexpr int kRows = 8;  // 8 x 2 accumulators; g++ 12 keeps no more of them in registers
#ifdef __AVX512VNNI__
Integers addPairs(Integers acc, Integers a, Integers b) { return _mm512_dpwssd_epi32(acc, a, b); }
#else
Integers addPairs(Integers acc, Integers a, Integers b) {
  return _mm512_add_epi32(acc, _mm512_madd_epi16(a, b));
}
#endif
Integers zero() { return _mm512_setzero_si512(); }
Integers load(const void *p) { return _mm512_loadu_si512(p); }
void save(void *p, Integers v) { _mm512_storeu_si512(p, v); }
Integers everywhere(int32_t i) { return _mm512_set1_epi32(i); }
Floats loadFloats(const float *p) { return _mm512_loadu_ps(p); }
Floats everywhere(float f) { return _mm512_set1_ps(f); }
// With a full mask these are plain instructions. (In some g++ the unmasked forms warn of
// uninitialised values.)
constexpr __mmask16 kAll = 0xFFFF;
Floats within(Floats v, Floats bound) {
  const Floats low = _mm512_sub_ps(_mm512_setzero_ps(), bound);
  return _mm512_maskz_min_ps(kAll, _mm512_maskz_max_ps(kAll, v, low), bound);
}
Integers rounded(Floats v) { return _mm512_maskz_cvtps_epi32(kAll, v); }
Floats times(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
Integers plus(Integers a, Integers b) { return _mm512_add_epi32(a, b); }
Integers minus(Integers a, Integers b) { return _mm512_sub_epi32(a, b); }
Integers shiftedDown(Integers a, int bits) { return _mm512_maskz_srai_epi32(kAll, a, bits); }
Integers shiftedUp(Integers a, int bits) { return _mm512_maskz_slli_epi32(kAll, a, bits); }
Integers upperWords(Integers a) { return _mm512_maskz_srli_epi32(kAll, a, 16); }
Integers alternate(Integers lower, Integers upper) {
  return _mm512_mask_blend_epi16(0xAAAAAAAA, lower, upper);
}
Integers largestWords(Integers a, Integers b) { return _mm512_max_epu16(a, _mm512_abs_epi16(b)); }
int32_t sumOfLanes(Integers a) { return _mm512_reduce_add_epi32(a); }
bool areWordsBelow(Integers a, int16_t bound) {
  return _mm512_cmpge_epu16_mask(a, _mm512_set1_epi16(bound)) == 0;
}
Doubles lowDoubles(Integers v) { return _mm512_maskz_cvtepi32_pd(0xFF, _mm512_castsi512_si256(v)); }
Doubles highDoubles(Integers v) {
  return _mm512_maskz_cvtepi32_pd(0xFF, _mm512_maskz_extracti64x4_epi64(0xFF, v, 1));
}
Doubles plus(Doubles a, Doubles b) { return _mm512_add_pd(a, b); }
Doubles times(Doubles a, double b) { return _mm512_mul_pd(a, _mm512_set1_pd(b)); }
Doubles loadDoubles(const double *p) { return _mm512_loadu_pd(p); }
void save(double *p, Doubles v) { _mm512_storeu_pd(p, v); }
void saveFloats(float *p, Doubles low, Doubles high, float unit) {
  const __m256 by = _mm256_set1_ps(unit);
  _mm256_storeu_ps(p, _mm256_mul_ps(_mm512_maskz_cvtpd_ps(0xFF, low), by));
  _mm256_storeu_ps(p + 8, _mm256_mul_ps(_mm512_maskz_cvtpd_ps(0xFF, high), by));
}

#elif defined(__AVX2__)

using Integers = __m256i;
using Floats = __m256;
using Doubles = __m256d;
constexpr int kLanes = 8;
constexpr int kRows = 6;  // 6 x 2 accumulators of 16 registers
Integers zero() { return _mm256_setzero_si256(); }
Integers load(const void *p) { return _mm256_loadu_si256(static_cast<const __m256i *>(p)); }
void save(void *p, Integers v) { _mm256_storeu_si256(static_cast<__m256i *>(p), v); }
Integers everywhere(int32_t i) { return _mm256_set1_epi32(i); }
// With intrinsics, g++ 12 makes all products of a step before it adds them, which takes more
// registers than there are.
Integers addPairs(Integers acc, Integers a, Integers b) {
  Integers product;
  __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(acc), "=&x"(product) : "x"(a), "x"(b));
  return acc;
}
Floats loadFloats(const float *p) { return _mm256_loadu_ps(p); }
Floats everywhere(float f) { return _mm256_set1_ps(f); }
Floats within(Floats v, Floats bound) {
  return _mm256_min_ps(_mm256_max_ps(v, _mm256_sub_ps(_mm256_setzero_ps(), bound)), bound);
}
Integers rounded(Floats v) { return _mm256_cvtps_epi32(v); }
Floats times(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
Integers plus(Integers a, Integers b) { return _mm256_add_epi32(a, b); }
Integers minus(Integers a, Integers b) { return _mm256_sub_epi32(a, b); }
Integers shiftedDown(Integers a, int bits) { return _mm256_srai_epi32(a, bits); }
Integers shiftedUp(Integers a, int bits) { return _mm256_slli_epi32(a, bits); }
Integers upperWords(Integers a) { return _mm256_srli_epi32(a, 16); }
Integers alternate(Integers lower, Integers upper) {
  return _mm256_blend_epi16(lower, upper, 0xAA);
}
Integers largestWords(Integers a, Integers b) { return _mm256_max_epu16(a, _mm256_abs_epi16(b)); }
int32_t sumOfLanes(Integers a) {
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  sum = _mm_add_epi32(sum, _mm_unpackhi_epi64(sum, sum));
  return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 1)));
}
bool areWordsBelow(Integers a, int16_t bound) {
  const Integers most = _mm256_set1_epi16(static_cast<int16_t>(bound - 1));
  const Integers beyond = _mm256_subs_epu16(a, most);
  return _mm256_testz_si256(beyond, beyond) != 0;
}
Doubles lowDoubles(Integers v) { return _mm256_cvtepi32_pd(_mm256_castsi256_si128(v)); }
Doubles highDoubles(Integers v) { return _mm256_cvtepi32_pd(_mm256_extracti128_si256(v, 1)); }
Doubles plus(Doubles a, Doubles b) { return _mm256_add_pd(a, b); }
Doubles times(Doubles a, double b) { return _mm256_mul_pd(a, _mm256_set1_pd(b)); }
Doubles loadDoubles(const double *p) { return _mm256_loadu_pd(p); }
void save(double *p, Doubles v) { _mm256_storeu_pd(p, v); }
void saveFloats(float *p, Doubles low, Doubles high, float unit) {
  const __m128 by = _mm_set1_ps(unit);
  _mm_storeu_ps(p, _mm_mul_ps(_mm256_cvtpd_ps(low), by));
  _mm_storeu_ps(p + 4, _mm_mul_ps(_mm256_cvtpd_ps(high), by));
}

#elif defined(__SSE4_1__)

using Integers = __m128i;
using Floats = __m128;
using Doubles = __m128d;
constexpr int kLanes = 4;
constexpr int kRows = 3;
Integers zero() { return _mm_setzero_si128(); }
Integers load(const void *p) { return _mm_loadu_si128(static_cast<const __m128i *>(p)); }
void save(void *p, Integers v) { _mm_storeu_si128(static_cast<__m128i *>(p), v); }
Integers everywhere(int32_t i) { return _mm_set1_epi32(i); }
Integers addPairs(Integers acc, Integers a, Integers b) {
  return _mm_add_epi32(acc, _mm_madd_epi16(a, b));
}
Floats loadFloats(const float *p) { return _mm_loadu_ps(p); }
Floats everywhere(float f) { return _mm_set1_ps(f); }
Floats within(Floats v, Floats bound) {
  return _mm_min_ps(_mm_max_ps(v, _mm_sub_ps(_mm_setzero_ps(), bound)), bound);
}
Integers rounded(Floats v) { return _mm_cvtps_epi32(v); }
Floats times(Floats a, Floats b) { return _mm_mul_ps(a, b); }
Integers plus(Integers a, Integers b) { return _mm_add_epi32(a, b); }
Integers minus(Integers a, Integers b) { return _mm_sub_epi32(a, b); }
Integers shiftedDown(Integers a, int bits) { return _mm_srai_epi32(a, bits); }
Integers shiftedUp(Integers a, int bits) { return _mm_slli_epi32(a, bits); }
Integers upperWords(Integers a) { return _mm_srli_epi32(a, 16); }
Integers alternate(Integers lower, Integers upper) { return _mm_blend_epi16(lower, upper, 0xAA); }
Integers largestWords(Integers a, Integers b) { return _mm_max_epu16(a, _mm_abs_epi16(b)); }
int32_t sumOfLanes(Integers a) {
  const __m128i sum = _mm_add_epi32(a, _mm_unpackhi_epi64(a, a));
  return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 1)));
}
bool areWordsBelow(Integers a, int16_t bound) {
  const Integers most = _mm_set1_epi16(static_cast<int16_t>(bound - 1));
  const Integers beyond = _mm_subs_epu16(a, most);
  return _mm_testz_si128(beyond, beyond) != 0;
}
Doubles lowDoubles(Integers v) { return _mm_cvtepi32_pd(v); }
Doubles highDoubles(Integers v) { return _mm_cvtepi32_pd(_mm_unpackhi_epi64(v, v)); }
Doubles plus(Doubles a, Doubles b) { return _mm_add_pd(a, b); }
Doubles times(Doubles a, double b) { return _mm_mul_pd(a, _mm_set1_pd(b)); }
Doubles loadDoubles(const double *p) { return _mm_loadu_pd(p); }
void save(double *p, Doubles v) { _mm_storeu_pd(p, v); }
void saveFloats(float *p, Doubles low, Doubles high, float unit) {
  const __m128 all = _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
  _mm_storeu_ps(p, _mm_mul_ps(all, _mm_set1_ps(unit)));
}

#endif

#ifdef __SSE4_1__

/// Four numbers of each in turns.
void zip(const int16_t *first, const int16_t *second, int16_t *to) {
  const __m128i all =
      _mm_unpacklo_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(first)),
                         _mm_loadl_epi64(reinterpret_cast<const __m128i *>(second)));
  _mm_storeu_si128(reinterpret_cast<__m128i *>(to), all);
}

#endif

}  // namespace
}  // namespace pulsora
