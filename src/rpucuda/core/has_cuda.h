#pragma once

namespace pulsora {

/// Whether this build has a CUDA backend. Code outside core/ and cuda/ need not ask: functions for
/// the GPU are defined in cuda/, or in the `cuda_absent.cpp` of their room, where they throw.
/// Sources that do not include this header compile to the same objects in either build.
#if defined(PULSORA_CUDA)
constexpr bool kHasCuda = true;
#else
constexpr bool kHasCuda = false;
#endif

/// Throws DeviceError: a GPU was requested of a build without CUDA. Defined only in such builds.
[[noreturn]] void throwWithoutCuda();

}  // namespace pulsora
