#pragma once

#include <cstdint>

#include "core/platform.h"

// Numbers that many threads change. The order of the threads does not matter to whole numbers.

namespace pulsora {

/// Adds to a number of 64 bits, of either sign.
template <class Number>
PULSORA_HD void atomicAddTo(Number *total, Number more) {
#if PULSORA_DEVICE_CODE
  atomicAdd(reinterpret_cast<unsigned long long *>(total), static_cast<unsigned long long>(more));
#else
  __atomic_fetch_add(total, more, __ATOMIC_RELAXED);
#endif
}

/// Raises a number of 32 or 64 bits to `least`, unless it is larger.
template <class Number>
PULSORA_HD void atomicRaiseTo(Number *number, Number least) {
#if PULSORA_DEVICE_CODE
  if (*static_cast<volatile Number *>(number) < least) {
    if constexpr (sizeof(Number) == 8) {
      atomicMax(reinterpret_cast<unsigned long long *>(number),
                static_cast<unsigned long long>(least));
    } else {
      atomicMax(number, least);
    }
  }
#else
  Number now = __atomic_load_n(number, __ATOMIC_RELAXED);
  while (now < least && !__atomic_compare_exchange_n(number, &now, least, true, __ATOMIC_RELAXED,
                                                     __ATOMIC_RELAXED)) {
  }
#endif
}

}  // namespace pulsora
