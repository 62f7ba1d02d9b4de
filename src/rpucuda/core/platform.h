#pragma once

// The only place that tests for the compiler and the instruction set.

#if defined(__CUDACC__)
#define PULSORA_HOST_DEVICE __host__ __device__
#else
#define PULSORA_HOST_DEVICE
#endif

// PULSORA_HD marks a function whose one definition serves CPU and CUDA. It is always inlined: the
// CPU kernels are compiled once per instruction set, and the linker would merge an out-of-line copy
// of an inline function across those object files, so that an old machine could end up executing
// AVX-512 code.
#define PULSORA_HD PULSORA_HOST_DEVICE inline __attribute__((always_inline))

#if defined(__CUDA_ARCH__)
#define PULSORA_DEVICE_CODE 1
#else
#define PULSORA_DEVICE_CODE 0
#endif

#define PULSORA_RESTRICT __restrict__

// The compiler's own memcpy, so that headers of cells need no library.
#if defined(__CUDACC__)
#define PULSORA_MEMCPY memcpy
#else
#define PULSORA_MEMCPY __builtin_memcpy
#endif

// A condition that callers within this library must ensure; checked in debug builds.
#if defined(NDEBUG)
#define PULSORA_ASSERT(condition) static_cast<void>(0)
#elif PULSORA_DEVICE_CODE
#define PULSORA_ASSERT(condition) ((condition) ? static_cast<void>(0) : __trap())
#else
#define PULSORA_ASSERT(condition) ((condition) ? static_cast<void>(0) : __builtin_trap())
#endif

namespace pulsora {

// The two places where data can live and code can run.
enum class Backend { Cpu, Cuda };

}  // namespace pulsora
