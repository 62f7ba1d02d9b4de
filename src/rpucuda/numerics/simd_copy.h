#pragma once

#include <cstdint>

#include "core/platform.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

// Rows that end within a vector, in translation units compiled per instruction set: compilers run
// the last lanes of a loop one by one if they do not know the number of lanes.

namespace pulsora {

constexpr int kVectorLanes = 16;

#if defined(__AVX2__)
/// A mask of the first `count` of eight lanes; none of a negative count, all of a large one.
PULSORA_HD __m256i firstOfEight(int count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
#endif

/// to[0 .. 15] = from[0 .. count - 1], and zeros; 0 < count <= 16.
PULSORA_HD void loadLanesOf(float *to, const float *from, int count) {
#if defined(__AVX512F__)
  const auto lanes = static_cast<__mmask16>(0xFFFFU >> (kVectorLanes - count));
  _mm512_storeu_ps(to, _mm512_maskz_loadu_ps(lanes, from));
#elif defined(__AVX2__)
  _mm256_storeu_ps(to, _mm256_maskload_ps(from, firstOfEight(count)));
  _mm256_storeu_ps(to + 8, _mm256_maskload_ps(from + 8, firstOfEight(count - 8)));
#else
  for (int l = 0; l < kVectorLanes; ++l) to[l] = 0.0f;
  for (int l = 0; l < count; ++l) to[l] = from[l];
#endif
}

/// to[0 .. count - 1] = from[0 .. count - 1] of 16; 0 < count <= 16.
PULSORA_HD void storeLanesOf(float *to, const float *from, int count) {
#if defined(__AVX512F__)
  const auto lanes = static_cast<__mmask16>(0xFFFFU >> (kVectorLanes - count));
  _mm512_mask_storeu_ps(to, lanes, _mm512_loadu_ps(from));
#elif defined(__AVX2__)
  _mm256_maskstore_ps(to, firstOfEight(count), _mm256_loadu_ps(from));
  _mm256_maskstore_ps(to + 8, firstOfEight(count - 8), _mm256_loadu_ps(from + 8));
#else
  for (int l = 0; l < count; ++l) to[l] = from[l];
#endif
}

/// to[0 .. kCount - 1] = from[0 .. kCount - 1], and the last kCount of `count` elements, in copies
/// of a fixed size that may overlap: masked stores are slower.
template <int kCount>
PULSORA_HD void copyEnds(float *to, const float *from, int64_t count) {
  constexpr auto kBytes = kCount * sizeof(float);
  __builtin_memcpy(to, from, kBytes);
  __builtin_memcpy(to + (count - kCount), from + (count - kCount), kBytes);
}

/// to[0 .. count - 1] = from[0 .. count - 1], for few elements.
PULSORA_HD void copyLanes(float *to, const float *from, int64_t count) {
  for (; count > kVectorLanes; count -= kVectorLanes, to += kVectorLanes, from += kVectorLanes)
    __builtin_memcpy(to, from, kVectorLanes * sizeof(float));
  if (count >= 8) {
    copyEnds<8>(to, from, count);
  } else if (count >= 4) {
    copyEnds<4>(to, from, count);
  } else if (count >= 2) {
    copyEnds<2>(to, from, count);
  } else if (count == 1) {
    *to = *from;
  }
}

}  // namespace pulsora
