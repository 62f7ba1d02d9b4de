#pragma once

// The device half of a launch (cuda/core/launch.cuh). It needs no CUDA header, so that a compiler
// at run time can read it.

namespace pulsora {

/// Lets the next kernel begin before this one has ended. Useful only where the next kernel can do
/// something before it calls awaitEarlier(): waiting blocks keep others out.
__device__ inline void letNextBegin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// Waits until all work before this kernel has ended and is visible. Every kernel must call it
/// before it reads or writes memory, or else before it ends.
__device__ inline void awaitEarlier() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace pulsora
