#pragma once

#include <cstdint>

// Asynchronous copies into shared memory, in groups: a thread can wait for the oldest of its
// groups.

namespace pulsora {

/// Begins to copy a word to an address in shared memory; writes 0 unless it is `there`.
__device__ inline void copyWordAsync(uint32_t shared, const void *global, bool there) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global),
               "r"(there ? 4 : 0)
               : "memory");
#else
  const uint32_t word = there ? *static_cast<const uint32_t *>(global) : 0;
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(shared), "r"(word) : "memory");
#endif
}

/// Begins to copy a word to shared memory; writes 0 unless it is `there`.
__device__ inline void copyWordAsync(uint32_t *shared, const uint32_t *global, bool there) {
  copyWordAsync(static_cast<uint32_t>(__cvta_generic_to_shared(shared)), global, there);
}

/// Begins to copy 16 bytes to an address in shared memory; writes 0 unless they are `there`.
__device__ inline void copyPieceAsync(uint32_t shared, const void *global, bool there) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(there ? 16 : 0)
               : "memory");
#else
  const uint4 piece = there ? *static_cast<const uint4 *>(global) : make_uint4(0, 0, 0, 0);
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(piece.x), "r"(piece.y),
               "r"(piece.z), "r"(piece.w)
               : "memory");
#endif
}

/// Makes one group of the copies that this thread has begun since the last group.
__device__ inline void endCopyGroup() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/// Waits for this thread's groups but the last `kLeft`.
template <int kLeft>
__device__ inline void awaitCopies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#endif
}

}  // namespace pulsora
