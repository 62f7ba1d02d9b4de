#pragma once

#include "core/view.h"
#include "numerics/math.h"
#include "numerics/simd_copy.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

// The largest magnitude of a row, in translation units compiled per instruction set.

namespace pulsora {

/// The largest magnitude in each lane of a vector, compared by its bits, which as integers have the
/// order of the values. NaN is above all others, or counts as 0 with kIgnoresNaN.
template <bool kIgnoresNaN>
struct LaneMax {
  int32_t part[kVectorLanes] = {};

  PULSORA_HD void add(const float *values) {
    constexpr int32_t kInfiniteBits = 0x7F800000;
    int32_t bits[kVectorLanes];
    for (int l = 0; l < kVectorLanes; ++l)
      bits[l] = static_cast<int32_t>(bitCast<uint32_t>(values[l]) & 0x7FFFFFFFU);
    if constexpr (kIgnoresNaN) {
      // All bits set up to infinity, else none; compilers do not vectorise a conditional here.
      for (int l = 0; l < kVectorLanes; ++l) bits[l] &= (bits[l] - (kInfiniteBits + 1)) >> 31;
    }
    for (int l = 0; l < kVectorLanes; ++l) part[l] = pulsora::max(part[l], bits[l]);
  }
  PULSORA_HD float result() const {
#if defined(__AVX2__)
    const auto *lanes = reinterpret_cast<const __m256i *>(part);
    const __m256i eight =
        _mm256_max_epi32(_mm256_loadu_si256(lanes), _mm256_loadu_si256(lanes + 1));
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4E));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xB1));
    return bitCast<float>(static_cast<uint32_t>(_mm_cvtsi128_si32(four)));
#else
    int32_t largest = 0;
    for (int l = 0; l < kVectorLanes; ++l) largest = pulsora::max(largest, part[l]);
    return bitCast<float>(static_cast<uint32_t>(largest));
#endif
  }
};
using AbsMaxIgnoringNaN = LaneMax<true>;
using AbsMaxWithNaN = LaneMax<false>;

/// The largest magnitude of a row, 0 for an empty one. Reduction: one of the two types above.
template <class Reduction>
PULSORA_HD float absMaxOf(VectorView<const float> row) {
  Reduction largest;
  float values[kVectorLanes] = {};
  if (row.stride != 1) {
    for (int64_t j = 0; j < row.size; ++j) {
      values[0] = row[j];
      largest.add(values);
    }
  } else if (row.size < kVectorLanes) {
    loadLanesOf(values, row.data, static_cast<int>(row.size));
    largest.add(values);
  } else {
    for (int64_t j = 0; j + kVectorLanes <= row.size; j += kVectorLanes) largest.add(row.data + j);
    largest.add(row.data + row.size - kVectorLanes);  // the last ones, some of them once more
  }
  return largest.result();
}

}  // namespace pulsora
