#pragma once

#include <cstdint>

#include "core/platform.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace pulsora {

/// Bit j of the result is set where words[j] & mask is not 0.
PULSORA_HD uint64_t lanesWith(const uint32_t (&words)[64], uint32_t mask) {
#if defined(__AVX512F__)
  const __m512i wanted = _mm512_set1_epi32(static_cast<int>(mask));
  uint64_t lanes = 0;
  for (int j = 0; j < 64; j += 16) {
    lanes |= uint64_t{_mm512_test_epi32_mask(_mm512_loadu_si512(words + j), wanted)} << j;
  }
  return lanes;
#elif defined(__AVX2__)
  const __m256i wanted = _mm256_set1_epi32(static_cast<int>(mask));
  uint64_t without = 0;
  for (int j = 0; j < 64; j += 8) {
    const __m256i word = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(words + j));
    const __m256i none = _mm256_cmpeq_epi32(_mm256_and_si256(word, wanted), _mm256_setzero_si256());
    without |= static_cast<uint64_t>(_mm256_movemask_ps(_mm256_castsi256_ps(none))) << j;
  }
  return ~without;
#elif defined(__SSE2__)
  const __m128i wanted = _mm_set1_epi32(static_cast<int>(mask));
  uint64_t without = 0;
  for (int j = 0; j < 64; j += 4) {
    const __m128i word = _mm_loadu_si128(reinterpret_cast<const __m128i *>(words + j));
    const __m128i none = _mm_cmpeq_epi32(_mm_and_si128(word, wanted), _mm_setzero_si128());
    without |= static_cast<uint64_t>(_mm_movemask_ps(_mm_castsi128_ps(none))) << j;
  }
  return ~without;
#else
  uint64_t lanes = 0;
  for (int j = 0; j < 64; ++j) lanes |= uint64_t{(words[j] & mask) != 0} << j;
  return lanes;
#endif
}

}  // namespace pulsora
