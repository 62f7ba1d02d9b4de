#pragma once

#include <cstdint>

// Products of floats with the accuracy of single precision, by tensor cores, which multiply numbers
// of 11 bits (tf32): each factor is the sum of a rounded number and a rest, and three of the four
// products are added up; the fourth would add less than 2^-22. The tensor cores cut off bits of
// sums where arithmetic would round; hence they add few products, and these partial sums are added
// outside. (Both after H. Ootomo and R. Yokota, Recovering single precision accuracy from Tensor
// Cores while surpassing the FP32 theoretical peak performance, IJHPCA 36, 2022.)

namespace pulsora {

/// value = big + small: big rounded to 11 bits, small exact; the tensor cores use 11 bits of small.
__device__ inline void splitValue(float value, uint32_t &big, uint32_t &small) {
  big = (__float_as_uint(value) + 0x1000U) & 0xFFFFE000U;
  small = __float_as_uint(value - __uint_as_float(big));
}

/// d += a b for tiles of 16 x 8 and 8 x 8 that the warp's lanes share; elements have the order of
/// the instruction.
__device__ inline void multiplyTile(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  __trap();  // never launched on such GPUs
#else
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

/// d += a b for a tile of 16 x 8; the lane holds b, and rows g and g + 8 of two columns of a.
__device__ inline void multiplyFloats(float (&d)[4], float2 upper, float2 lower, float2 b) {
  uint32_t a[4], aRest[4], big[2], rest[2];
  splitValue(upper.x, a[0], aRest[0]);
  splitValue(lower.x, a[1], aRest[1]);
  splitValue(upper.y, a[2], aRest[2]);
  splitValue(lower.y, a[3], aRest[3]);
  splitValue(b.x, big[0], rest[0]);
  splitValue(b.y, big[1], rest[1]);
  multiplyTile(d, aRest, big);
  multiplyTile(d, a, rest);
  multiplyTile(d, a, big);
}

__device__ inline float4 asFloats(uint4 v) {
  return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z),
                     __uint_as_float(v.w));
}

}  // namespace pulsora
