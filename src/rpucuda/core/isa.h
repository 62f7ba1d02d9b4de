#pragma once

#include <vector>

namespace pulsora {

/// The instruction sets for which the CPU kernels are compiled. Results are the same bits on all of
/// them. Off x86-64 there is only V2, which then means the compiler's default instruction set.
enum class Isa {
  V2,        ///< x86-64-v2: SSE4.2, no fused multiply-add instruction
  V3,        ///< x86-64-v3: AVX2 and FMA
  V4,        ///< x86-64-v4: AVX-512 F, BW, CD, DQ, VL
  V4Popcnt,  ///< V4, AVX512_VPOPCNTDQ and AVX512_VNNI
};

/// "V2", "V3", "V4" or "V4Popcnt".
const char *isaName(Isa isa);

/// Whether the kernels of `isa` are compiled in and this machine can execute them.
bool isaSupported(Isa isa);

/// The instruction sets that this machine can execute, from the plainest to the best.
std::vector<Isa> supportedIsas();

/// The best of `supportedIsas()`.
Isa bestIsa();

}  // namespace pulsora
