#pragma once

#include "numerics/random.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

// draw() for 16 elements at once, in translation units compiled per instruction set. A loop over
// draw() compiles to 1.5 times the instructions, because the compiler does not see that the
// products can stay in 64-bit lanes from one round to the next.

namespace pulsora {

constexpr int kPhiloxBatch = 16;

/// Random words of 16 counters: words[m][j] is word m of counter j.
struct PhiloxBatch {
  uint32_t words[4][kPhiloxBatch];
};

namespace detail {

#if defined(__AVX512F__)
using WideLanes = __m512i;
PULSORA_HD WideLanes broadcast(uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
PULSORA_HD WideLanes loadLanes(const uint32_t *from) { return _mm512_loadu_si512(from); }
PULSORA_HD void storeLanes(uint32_t *to, WideLanes x) { _mm512_storeu_si512(to, x); }
PULSORA_HD WideLanes highHalves(WideLanes x) { return _mm512_srli_epi64(x, 32); }
PULSORA_HD WideLanes product(WideLanes a, WideLanes b) { return _mm512_mul_epu32(a, b); }
PULSORA_HD WideLanes xor3(WideLanes a, WideLanes b, WideLanes c) {
  return _mm512_ternarylogic_epi64(a, b, c, 0x96);
}
PULSORA_HD WideLanes interleave(WideLanes even, WideLanes odd) {
  return _mm512_mask_shuffle_epi32(even, 0xAAAA, odd, _MM_PERM_CCAA);
}
#elif defined(__AVX2__)
using WideLanes = __m256i;
PULSORA_HD WideLanes broadcast(uint32_t x) { return _mm256_set1_epi32(static_cast<int>(x)); }
PULSORA_HD WideLanes loadLanes(const uint32_t *from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from));
}
PULSORA_HD void storeLanes(uint32_t *to, WideLanes x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(to), x);
}
PULSORA_HD WideLanes highHalves(WideLanes x) { return _mm256_srli_epi64(x, 32); }
PULSORA_HD WideLanes product(WideLanes a, WideLanes b) { return _mm256_mul_epu32(a, b); }
PULSORA_HD WideLanes xor3(WideLanes a, WideLanes b, WideLanes c) {
  return _mm256_xor_si256(_mm256_xor_si256(a, b), c);
}
PULSORA_HD WideLanes interleave(WideLanes even, WideLanes odd) {
  return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
}
#endif

#if defined(__AVX2__)
/// philox4x32_10() in the low halves of 64-bit lanes; the high halves are ignored.
struct WidePhilox {
  WideLanes c0, c1, c2, c3;

  PULSORA_HD void run(RandomKey key) {
    for (uint32_t round = 0; round < 10; ++round) {
      const WideLanes p0 = product(c0, broadcast(0xD2511F53U));
      const WideLanes p2 = product(c2, broadcast(0xCD9E8D57U));
      c0 = xor3(highHalves(p2), c1, broadcast(key.k0 + round * 0x9E3779B9U));
      c2 = xor3(highHalves(p0), c3, broadcast(key.k1 + round * 0xBB67AE85U));
      c1 = p2;
      c3 = p0;
    }
  }
};

PULSORA_HD void philoxLanes(WideLanes elements, WideLanes samples, uint32_t word2, uint32_t word3,
                            RandomKey key, int first, PhiloxBatch &batch) {
  WidePhilox even{elements, samples, broadcast(word2), broadcast(word3)};
  WidePhilox odd{highHalves(elements), highHalves(samples), broadcast(word2), broadcast(word3)};
  even.run(key);
  odd.run(key);
  storeLanes(&batch.words[0][first], interleave(even.c0, odd.c0));
  storeLanes(&batch.words[1][first], interleave(even.c1, odd.c1));
  storeLanes(&batch.words[2][first], interleave(even.c2, odd.c2));
  storeLanes(&batch.words[3][first], interleave(even.c3, odd.c3));
}
#endif

}  // namespace detail

/// batch.words[m][j] = draw(key, purpose, elements[j], sampleHigh << 32 | samples[j], index).v[m];
/// elements below 2^32.
PULSORA_HD void drawBatch(RandomKey key, Purpose purpose, const uint32_t (&elements)[kPhiloxBatch],
                          const uint32_t (&samples)[kPhiloxBatch], uint32_t sampleHigh,
                          uint32_t index, PhiloxBatch &batch) {
#if defined(__AVX2__)
  const Philox4 counter = makeCounter(purpose, 0, uint64_t{sampleHigh} << 32, index);
  constexpr int kLanes = sizeof(detail::WideLanes) / sizeof(uint32_t);
  for (int j = 0; j < kPhiloxBatch; j += kLanes) {
    detail::philoxLanes(detail::loadLanes(elements + j), detail::loadLanes(samples + j),
                        counter.v[2], counter.v[3], key, j, batch);
  }
#else
  for (int j = 0; j < kPhiloxBatch; ++j) {
    const Philox4 r =
        draw(key, purpose, elements[j], uint64_t{sampleHigh} << 32 | samples[j], index);
    for (int m = 0; m < 4; ++m) batch.words[m][j] = r.v[m];
  }
#endif
}

/// batch.words[m][j] = draw(key, purpose, element + j, sample, index).v[m]; elements below 2^32.
PULSORA_HD void drawBatch(RandomKey key, Purpose purpose, uint32_t element, uint64_t sample,
                          uint32_t index, PhiloxBatch &batch) {
#if defined(__AVX2__)
  const Philox4 counter = makeCounter(purpose, element, sample, index);
  uint32_t elements[kPhiloxBatch];
  for (uint32_t j = 0; j < kPhiloxBatch; ++j) elements[j] = element + j;
  constexpr int kLanes = sizeof(detail::WideLanes) / sizeof(uint32_t);
  for (int j = 0; j < kPhiloxBatch; j += kLanes) {
    detail::philoxLanes(detail::loadLanes(elements + j), detail::broadcast(counter.v[1]),
                        counter.v[2], counter.v[3], key, j, batch);
  }
#else
  for (int j = 0; j < kPhiloxBatch; ++j) {
    const Philox4 r = draw(key, purpose, element + static_cast<uint32_t>(j), sample, index);
    for (int m = 0; m < 4; ++m) batch.words[m][j] = r.v[m];
  }
#endif
}

}  // namespace pulsora
