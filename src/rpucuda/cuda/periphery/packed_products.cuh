#pragma once

#include "cuda/periphery/byte_products.cuh"
#include "cuda/periphery/products.cuh"

// Products of neighbouring inputs of a row with weights of one line, by one thread: an input at a
// time, or four levels of a byte at a time.

namespace pulsora {

/// A Product of one input at a time.
template <class Product>
struct OneByOne {
  using Single = Product;
  using Factor = typename Product::Factor;
  using Sum = typename Product::Sum;
  static constexpr int kInputs = 1;
  static constexpr int kFactors = 1;  // of the weights of kInputs inputs
  static constexpr bool kOfLevels = Product::kOfLevels;
  Product product;

  __device__ explicit OneByOne(const PlainRead &read) : product(read) {}
  __device__ auto pack(const float (&u)[1]) const { return product.input(u[0]); }
  __device__ void factorsOf(const float (&w)[1], Factor (&factors)[1]) const {
    factors[0] = product.weight(w[0]);
  }
  template <class Packed>
  __device__ static void add(Sum &sum, Packed u, const Factor (&factors)[1]) {
    Product::add(sum, u, factors[0]);
  }
  __device__ float result(const Sum &sum) const { return product.result(sum); }
};

/// sum + the products of the four bytes of a, which have signs, with those of b.
template <bool kSigned>
__device__ inline int32_t addFourBytes(int32_t sum, uint32_t a, uint32_t b) {
  int32_t result;
  if constexpr (kSigned) {
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
  } else {
    asm("dp4a.s32.u32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
  }
  return result;
}

/// The product of integers of rows whose levels are of one byte, with weights of kDigits bytes:
/// four inputs at a time. Each byte of the weights has a sum of its own, of 32 bits.
template <int kDigits>
struct FourBytes {
  using Single = IntegerProduct;
  using Factor = uint32_t;
  struct Sum {
    int32_t of[kDigits];
  };
  static constexpr int kInputs = 4;
  static constexpr int kFactors = kDigits;
  static constexpr bool kOfLevels = true;
  static constexpr int64_t kMostInputs = 65536;  // 127 * 255 times it is below 2^31
  IntegerProduct product;

  __device__ explicit FourBytes(const PlainRead &read) : product(read) {}
  /// Four levels of [-127, 127]; of any other number, as beyond the last input, some byte.
  __device__ uint32_t pack(const float (&u)[4]) const {
    uint32_t n[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) n[i] = IntegerProduct::byteOf(u[i]);
    return __byte_perm(__byte_perm(n[0], n[1], 0x0040), __byte_perm(n[2], n[3], 0x0040), 0x5410);
  }
  __device__ void factorsOf(const float (&w)[4], Factor (&factors)[kDigits]) const {
    digitsOf(product.integers, w, factors);
  }
  __device__ static void add(Sum &sum, uint32_t u, const Factor (&factors)[kDigits]) {
#pragma unroll
    for (int d = 0; d < kDigits - 1; ++d) sum.of[d] = addFourBytes<false>(sum.of[d], u, factors[d]);
    sum.of[kDigits - 1] = addFourBytes<true>(sum.of[kDigits - 1], u, factors[kDigits - 1]);
  }
  __device__ float result(const Sum &sum) const {
    int64_t whole = sum.of[kDigits - 1];
#pragma unroll
    for (int d = kDigits - 2; d >= 0; --d) whole = whole * 256 + sum.of[d];
    return product.result(whole);
  }
};

}  // namespace pulsora
