#pragma once

#include <type_traits>

#include "core/isa.h"

// Sources named *_isa.cpp are compiled once for every Isa up to PULSORA_LAST_ISA; PULSORA_ISA names
// the set. A build whose compiler lacks the better sets defines PULSORA_LAST_ISA lower. Only code
// that selects among the sets includes this header, so that all other code compiles to the same
// objects in such a build.
#ifndef PULSORA_LAST_ISA
#ifdef __x86_64__
#define PULSORA_LAST_ISA 3
#else
#define PULSORA_LAST_ISA 0
#endif
#endif

namespace pulsora {

/// The best instruction set that is compiled in.
constexpr Isa kLastIsa = static_cast<Isa>(PULSORA_LAST_ISA);

/// Calls body(std::integral_constant<Isa, i>{}) with i = `wanted`, or the best one compiled in if
/// that is less: selects at run time among code compiled once per instruction set.
template <Isa isa = kLastIsa, class Body>
auto withIsa(Isa wanted, const Body &body) {
  if constexpr (isa != Isa::V2) {
    if (wanted < isa) return withIsa<static_cast<Isa>(static_cast<int>(isa) - 1)>(wanted, body);
  }
  return body(std::integral_constant<Isa, isa>{});
}

}  // namespace pulsora
