#pragma once

#include <type_traits>
#include <vector>

// Sources named *_isa.cpp are compiled once for every Isa up to PULSORA_LAST_ISA, with PULSORA_ISA
// naming which. A build whose compiler lacks the better ones defines PULSORA_LAST_ISA lower.
#ifndef PULSORA_LAST_ISA
#ifdef __x86_64__
#define PULSORA_LAST_ISA 3
#else
#define PULSORA_LAST_ISA 0
#endif
#endif

namespace RPU {

/// The instruction sets for which the CPU kernels are compiled. Results are the same bits on all of
/// them. Off x86-64 there is only V2, which then means the compiler's default instruction set.
enum class Isa {
  V2,        ///< x86-64-v2: SSE4.2, no fused multiply-add instruction
  V3,        ///< x86-64-v3: AVX2 and FMA
  V4,        ///< x86-64-v4: AVX-512 F, BW, CD, DQ, VL
  V4Popcnt,  ///< V4 and AVX512_VPOPCNTDQ
};

/// The best instruction set that is compiled in.
constexpr Isa kLastIsa = static_cast<Isa>(PULSORA_LAST_ISA);

/// "V2", "V3", "V4" or "V4Popcnt".
const char *isaName(Isa isa);

/// Whether the kernels of `isa` are compiled in and this machine can execute them.
bool isaSupported(Isa isa);

/// The instruction sets that this machine can execute, from the plainest to the best.
std::vector<Isa> supportedIsas();

/// The best of `supportedIsas()`.
Isa bestIsa();

/// Calls body(std::integral_constant<Isa, i>{}) with i = `wanted`, or the best one compiled in if
/// that is less: selects at run time among code compiled once per instruction set.
template <Isa isa = kLastIsa, class Body>
auto withIsa(Isa wanted, const Body &body) {
  if constexpr (isa != Isa::V2) {
    if (wanted < isa) return withIsa<static_cast<Isa>(static_cast<int>(isa) - 1)>(wanted, body);
  }
  return body(std::integral_constant<Isa, isa>{});
}

}  // namespace RPU
