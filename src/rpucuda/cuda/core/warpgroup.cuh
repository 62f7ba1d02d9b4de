#pragma once

#include <cstdint>

// Matrix products by the four warps of a warpgroup, for compute capability 9.0 alone (compiled for
// sm_90a), and the layout of their factors in shared memory. Products are asynchronous until
// waitForProducts(). Lane (g, t) of warp w holds the sums of rows 16 w + g and 16 w + g + 8 and of
// columns 8 j + 2 t and 8 j + 2 t + 1, in elements 4 j to 4 j + 3.

namespace pulsora {

/// Makes the thread's writes to shared memory visible to later products and copies of other
/// threads.
__device__ inline void publishShared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Orders earlier accesses to registers and shared memory before the products that follow.
__device__ inline void beginProducts() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Makes the products since the last call a group.
__device__ inline void commitProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits for all groups except the last `kLeft`.
template <int kLeft>
__device__ inline void waitForProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

/// Keeps the compiler from using sums before the preceding products have ended.
template <int kSums>
__device__ inline void settle(float (&d)[kSums]) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int kSums>
__device__ inline void settle(int (&d)[kSums]) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) asm volatile("" : "+r"(d[i])::"memory");
}

/// Layout of a matrix in shared memory; the matrix begins at a multiple of 1024 bytes.
enum class Swizzle : uint64_t { k128Bytes = 1, k32Bytes = 3 };

/// Describes rows of 128 or 32 bytes, in groups of eight; pieces of 16 bytes are permuted like the
/// copy engine's.
__device__ inline uint64_t describe(uint32_t address, Swizzle swizzle) {
  const uint64_t groupBytes = swizzle == Swizzle::k128Bytes ? 1024 : 256;
  return static_cast<uint64_t>((address & 0x3FFFFU) >> 4) | uint64_t{1} << 16 |
         (groupBytes >> 4) << 32 | static_cast<uint64_t>(swizzle) << 62;
}

/// The operands of a thread's 64 sums, of 64 rows and 128 columns of a warpgroup.
#define PULSORA_NAMES_128            \
  "%0,%1,%2,%3,%4,%5,%6,%7"          \
  ",%8,%9,%10,%11,%12,%13,%14,%15"   \
  ",%16,%17,%18,%19,%20,%21,%22,%23" \
  ",%24,%25,%26,%27,%28,%29,%30,%31" \
  ",%32,%33,%34,%35,%36,%37,%38,%39" \
  ",%40,%41,%42,%43,%44,%45,%46,%47" \
  ",%48,%49,%50,%51,%52,%53,%54,%55" \
  ",%56,%57,%58,%59,%60,%61,%62,%63"

}  // namespace pulsora
