#pragma once

// The only place that asks which compiler and which instruction set are used.

#if defined(__CUDACC__)
#define RPU_HOST_DEVICE __host__ __device__
#else
#define RPU_HOST_DEVICE
#endif

// RPU_HD marks a function whose one definition serves CPU and CUDA. It is always inlined: the CPU
// kernels are compiled once per instruction set, and an out-of-line copy of an inline function
// would be merged across those object files by the linker, so that an old machine could end up
// executing AVX-512 code.
#define RPU_HD RPU_HOST_DEVICE inline __attribute__((always_inline))

#if defined(__CUDA_ARCH__)
#define RPU_DEVICE_CODE 1
#else
#define RPU_DEVICE_CODE 0
#endif

#define RPU_RESTRICT __restrict__

// The compiler's own memcpy, so that headers of cells need no library.
#if defined(__CUDACC__)
#define RPU_MEMCPY memcpy
#else
#define RPU_MEMCPY __builtin_memcpy
#endif

// A condition that callers within this library must ensure; checked in debug builds.
#if defined(NDEBUG)
#define RPU_ASSERT(condition) static_cast<void>(0)
#elif RPU_DEVICE_CODE
#define RPU_ASSERT(condition) ((condition) ? static_cast<void>(0) : __trap())
#else
#define RPU_ASSERT(condition) ((condition) ? static_cast<void>(0) : __builtin_trap())
#endif

namespace RPU {

// The two places where data can live and code can run.
enum class Backend { Cpu, Cuda };

}  // namespace RPU
