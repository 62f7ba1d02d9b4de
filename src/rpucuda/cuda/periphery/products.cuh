#pragma once

#include "periphery/read_stages.h"

// The operations of a product of converted inputs with weights: in floating point, or in integers,
// whose inputs are whole numbers.

namespace pulsora {

struct FloatProduct {
  using Factor = float;
  using Sum = float;
  static constexpr bool kOfLevels = false;

  __device__ explicit FloatProduct(const PlainRead &) {}
  __device__ float input(float u) const { return u; }
  __device__ float weight(float w) const { return w; }
  /// An input in the bits of a float, and back.
  __device__ float bitsOf(float u) const { return u; }
  __device__ float ofBits(float bits) const { return bits; }
  __device__ static void add(float &sum, float u, float w) { sum = pulsora::fma(w, u, sum); }
  __device__ float result(float sum) const { return sum; }
};

struct IntegerProduct {
  using Factor = int32_t;
  using Sum = int64_t;
  static constexpr bool kOfLevels = true;       // whether inputs are RowLevels
  static constexpr float kWhole = 12582912.0f;  // 1.5 * 2^23
  IntegerWeights integers;
  float unit;

  __device__ explicit IntegerProduct(const PlainRead &read)
      : integers(read.integers), unit(read.unit) {}
  /// The level, or the nearest whole number. A sum with 1.5 * 2^23 has it in its last bits, and is
  /// quicker than a conversion.
  __device__ int32_t input(float level) const {
    return __float_as_int(level + kWhole) - __float_as_int(kWhole);
  }
  /// The level in the last byte of a word.
  __device__ static uint32_t byteOf(float level) { return __float_as_uint(level + kWhole); }
  __device__ int32_t weight(float w) const { return integerOf(integers, w); }
  __device__ float bitsOf(float level) const { return __int_as_float(input(level)); }
  __device__ int32_t ofBits(float bits) const { return __float_as_int(bits); }
  __device__ static void add(int64_t &sum, int32_t n, int32_t v) { sum += int64_t{n} * v; }
  __device__ float result(int64_t sum) const { return valueOf(sum, unit); }
};

template <class T>
struct TypeOf {
  using Type = T;
};
/// Calls launch(TypeOf<the product of a read>).
template <class Launch>
void withProductOf(const PlainRead &read, const Launch &launch) {
  if (read.integers.exist()) {
    launch(TypeOf<IntegerProduct>{});
  } else {
    launch(TypeOf<FloatProduct>{});
  }
}

/// The sum that the lane has whose number differs in the bit `half`.
__device__ inline float ofLane(float sum, int half) {
  return __shfl_xor_sync(0xFFFFFFFFU, sum, half);
}
__device__ inline int64_t ofLane(int64_t sum, int half) {
  return __shfl_xor_sync(0xFFFFFFFFU, static_cast<long long>(sum), half);
}

}  // namespace pulsora
