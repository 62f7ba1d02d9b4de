#pragma once

#include <cstdint>

#include "cuda/core/warpgroup.cuh"
#include "lowrank/element.h"

// Products of 16-bit floats by a warpgroup (cuda/core/warpgroup.cuh): d += a b for 64 rows, the
// number of columns in the operation's name, and a depth of 16. b is in shared memory, column after
// column; a is in shared memory or in registers.

namespace pulsora::lowrank {

#define PULSORA_NAMES_136 PULSORA_NAMES_128 ",%64,%65,%66,%67"
#define PULSORA_NAMES_144 PULSORA_NAMES_136 ",%68,%69,%70,%71"
#define PULSORA_NAMES_192            \
  PULSORA_NAMES_144                  \
  ",%72,%73,%74,%75,%76,%77,%78,%79" \
  ",%80,%81,%82,%83,%84,%85,%86,%87" \
  ",%88,%89,%90,%91,%92,%93,%94,%95"
#define PULSORA_NAMES_200 PULSORA_NAMES_192 ",%96,%97,%98,%99"
#define PULSORA_NAMES_208 PULSORA_NAMES_200 ",%100,%101,%102,%103"
#define PULSORA_SUMS_4(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define PULSORA_SUMS_16(i) \
  PULSORA_SUMS_4(i), PULSORA_SUMS_4((i) + 4), PULSORA_SUMS_4((i) + 8), PULSORA_SUMS_4((i) + 12)
#define PULSORA_SUMS_128 \
  PULSORA_SUMS_16(0), PULSORA_SUMS_16(16), PULSORA_SUMS_16(32), PULSORA_SUMS_16(48)
#define PULSORA_SUMS_136 PULSORA_SUMS_128, PULSORA_SUMS_4(64)
#define PULSORA_SUMS_144 PULSORA_SUMS_136, PULSORA_SUMS_4(68)
#define PULSORA_SUMS_192 PULSORA_SUMS_128, PULSORA_SUMS_16(64), PULSORA_SUMS_16(80)
#define PULSORA_SUMS_200 PULSORA_SUMS_192, PULSORA_SUMS_4(96)
#define PULSORA_SUMS_208 PULSORA_SUMS_200, PULSORA_SUMS_4(100)

/// d = a b, or d += a b where `adds`, of elements T.
template <class T, int kColumns>
struct WideProduct;
/// d += a b for the first kColumns columns of d and an `a` in registers, in the layout of
/// mma.m16n8k16.
template <class T, int kColumns>
struct GatedProduct;

// The last three operands follow the kColumns / 2 sums.
#define PULSORA_WIDE_FROM_SHARED(T, kType, kColumns, kA, kB, kAdds)                               \
  template <>                                                                                     \
  struct WideProduct<T, kColumns> {                                                               \
    static __device__ inline void run(float (&d)[kColumns / 2], uint64_t a, uint64_t b,           \
                                      int adds) {                                                 \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " kAdds                                      \
                   ", 0;\nwgmma.mma_async.sync.aligned.m64n" #kColumns "k16.f32." kType "." kType \
                   " {" PULSORA_NAMES_##kColumns "}, " kA ", " kB ", p, 1, 1, 0, 0;\n}"           \
                   : PULSORA_SUMS_##kColumns                                                      \
                   : "l"(a), "l"(b), "r"(adds));                                                  \
    }                                                                                             \
  };
#define PULSORA_WIDE_FROM_REGISTERS(T, kType, kColumns, kA, kB)                                \
  template <>                                                                                  \
  struct GatedProduct<T, kColumns> {                                                           \
    template <int kSums>                                                                       \
    static __device__ inline void add(float (&d)[kSums], const uint32_t (&a)[4], uint64_t b) { \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #kColumns "k16.f32." kType "." kType    \
                   " {" PULSORA_NAMES_##kColumns "}, {" kA "}, " kB ", 1, 1, 1, 0;"            \
                   : PULSORA_SUMS_##kColumns                                                   \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                      \
    }                                                                                          \
  };
#define PULSORA_WIDE_PRODUCTS(T, kType)                                \
  PULSORA_WIDE_FROM_SHARED(T, kType, 136, "%68", "%69", "%70")         \
  PULSORA_WIDE_FROM_SHARED(T, kType, 144, "%72", "%73", "%74")         \
  PULSORA_WIDE_FROM_SHARED(T, kType, 200, "%100", "%101", "%102")      \
  PULSORA_WIDE_FROM_SHARED(T, kType, 208, "%104", "%105", "%106")      \
  PULSORA_WIDE_FROM_REGISTERS(T, kType, 128, "%64,%65,%66,%67", "%68") \
  PULSORA_WIDE_FROM_REGISTERS(T, kType, 192, "%96,%97,%98,%99", "%100")

PULSORA_WIDE_PRODUCTS(Half, "f16")
PULSORA_WIDE_PRODUCTS(BFloat16, "bf16")

#undef PULSORA_WIDE_PRODUCTS
#undef PULSORA_WIDE_FROM_REGISTERS
#undef PULSORA_WIDE_FROM_SHARED
#undef PULSORA_SUMS_128
#undef PULSORA_NAMES_136
#undef PULSORA_SUMS_136
#undef PULSORA_NAMES_144
#undef PULSORA_SUMS_144
#undef PULSORA_NAMES_192
#undef PULSORA_SUMS_192
#undef PULSORA_NAMES_200
#undef PULSORA_SUMS_200
#undef PULSORA_NAMES_208
#undef PULSORA_SUMS_208
#undef PULSORA_SUMS_16
#undef PULSORA_SUMS_4

}  // namespace pulsora::lowrank
