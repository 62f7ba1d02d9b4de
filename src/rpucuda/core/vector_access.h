#pragma once

#include <cstdint>

#include "core/platform.h"

namespace pulsora {

/// Four floats at an address that 16 divides, which a GPU reads and writes at once.
struct alignas(16) FourFloats {
  float v[4];
};

namespace detail {

PULSORA_HD bool isAlignedForFour(const float *p) {
  return reinterpret_cast<uintptr_t>(p) % sizeof(FourFloats) == 0;
}

}  // namespace detail

/// Reads kCount floats, of which `left` exist; the others become 0.
template <int kCount>
PULSORA_HD void loadFloats(const float *from, int64_t left, float (&to)[kCount]) {
  static_assert(kCount % 4 == 0, "floats are read four at a time");
  if (left >= kCount && detail::isAlignedForFour(from)) {
    for (int q = 0; q < kCount / 4; ++q) {
      const FourFloats four = reinterpret_cast<const FourFloats *>(from)[q];
      for (int i = 0; i < 4; ++i) to[4 * q + i] = four.v[i];
    }
  } else {
    for (int i = 0; i < kCount; ++i) to[i] = i < left ? from[i] : 0.0f;
  }
}

/// Writes kCount floats, of which `left` have a place.
template <int kCount>
PULSORA_HD void storeFloats(const float (&from)[kCount], int64_t left, float *to) {
  static_assert(kCount % 4 == 0, "floats are written four at a time");
  if (left >= kCount && detail::isAlignedForFour(to)) {
    for (int q = 0; q < kCount / 4; ++q) {
      const float *v = from + 4 * q;
#if PULSORA_DEVICE_CODE
      // As a struct, compilers write four floats one by one if the other branch does.
      asm volatile("st.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to + 4 * q), "f"(v[0]), "f"(v[1]),
                   "f"(v[2]), "f"(v[3])
                   : "memory");
#else
      reinterpret_cast<FourFloats *>(to)[q] = {{v[0], v[1], v[2], v[3]}};
#endif
    }
  } else {
    for (int i = 0; i < kCount && i < left; ++i) to[i] = from[i];
  }
}

}  // namespace pulsora
