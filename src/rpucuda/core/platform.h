#pragma once

// What the compiler and the instruction set are is known here and nowhere else.

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

namespace RPU {

// The two places where data can live and code can run.
enum class Backend { Cpu, Cuda };

}  // namespace RPU
