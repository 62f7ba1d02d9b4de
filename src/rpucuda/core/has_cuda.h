#pragma once

namespace RPU {

// Whether this build has a CUDA backend. Code outside core/ and cuda/ need not ask: functions for
// the GPU are defined in cuda/, or in cuda_absent.cpp, where they throw. Sources that do not
// include this header compile to the same objects in either build.
#if defined(PULSORA_CUDA)
constexpr bool kHasCuda = true;
#else
constexpr bool kHasCuda = false;
#endif

}  // namespace RPU
