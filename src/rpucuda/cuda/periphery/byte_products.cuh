#pragma once

#include <cstdint>

#include "linalg/integers.h"

// Products of bytes on the tensor cores, with sums of 32 bits, and the bytes of integer weights.

namespace pulsora {

/// sums += a b for tiles of 16 x 32 and 32 x 8 bytes that the warp's lanes share.
template <bool kSignedA, bool kSignedB>
__device__ inline void multiplyBytes(int (&sums)[4], const uint32_t (&a)[4], uint32_t b0,
                                     uint32_t b1) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
// Tiles of 8 x 16 and 16 x 8 bytes, whose fragments are the registers of the larger ones.
#define PULSORA_MULTIPLY_PART(A, B, c, i, b)                                               \
  asm("mma.sync.aligned.m8n8k16.row.col.s32." A "." B ".s32 {%0,%1}, {%2}, {%3}, {%0,%1};" \
      : "+r"(sums[c]), "+r"(sums[(c) + 1])                                                 \
      : "r"(a[i]), "r"(b))
#define PULSORA_MULTIPLY(A, B)           \
  PULSORA_MULTIPLY_PART(A, B, 0, 0, b0); \
  PULSORA_MULTIPLY_PART(A, B, 0, 2, b1); \
  PULSORA_MULTIPLY_PART(A, B, 2, 1, b0); \
  PULSORA_MULTIPLY_PART(A, B, 2, 3, b1)
#else
#define PULSORA_MULTIPLY(A, B)                                     \
  asm("mma.sync.aligned.m16n8k32.row.col.s32." A "." B             \
      ".s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
      : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3]) \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
#endif
  if constexpr (kSignedA && kSignedB) {
    PULSORA_MULTIPLY("s8", "s8");
  } else if constexpr (kSignedA) {
    PULSORA_MULTIPLY("s8", "u8");
  } else if constexpr (kSignedB) {
    PULSORA_MULTIPLY("u8", "s8");
  } else {
    PULSORA_MULTIPLY("u8", "u8");
  }
#undef PULSORA_MULTIPLY
#undef PULSORA_MULTIPLY_PART
}

/// Loads the second factors of two products, 32 x 8 bytes each; lane l gives the address of row
/// l % 8 of matrix l / 8: inputs 0 to 15 and 16 to 31 of the first product, then of the second.
__device__ inline void loadFragments(uint32_t shared, uint32_t (&b)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
               : "r"(shared));
}

/// Loads the second factors of one product; lanes 0 to 15 give addresses in the same way.
__device__ inline void loadFragment(uint32_t shared, uint32_t (&b)[2]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
               : "=r"(b[0]), "=r"(b[1])
               : "r"(shared));
}

/// The digits of four weights: word d has byte d of each.
template <int kDigits>
__device__ inline void digitsOf(const IntegerWeights &integers, const float (&w)[4],
                                uint32_t (&digits)[kDigits]) {
  static_assert(kDigits == 2 || kDigits == 3, "weights of 16 or 24 bits");
  uint32_t v[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) v[e] = static_cast<uint32_t>(integerOf(integers, w[e]));
  const uint32_t low = __byte_perm(v[0], v[1], 0x5140);  // bytes 0 and 1, of both in turn
  const uint32_t high = __byte_perm(v[2], v[3], 0x5140);
  digits[0] = __byte_perm(low, high, 0x5410);
  digits[1] = __byte_perm(low, high, 0x7632);
  if constexpr (kDigits == 3) {
    digits[2] =
        __byte_perm(__byte_perm(v[0], v[1], 0x0062), __byte_perm(v[2], v[3], 0x0062), 0x5410);
  }
}

}  // namespace pulsora
