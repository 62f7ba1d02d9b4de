#pragma once

#include <cstdint>

#include "core/platform.h"

// Reductions with equal bits whether one CPU thread or a whole GPU block carries them out. A
// function that uses them is a template over the group, marked PULSORA_CALLS_GROUP.

#if defined(__CUDACC__)
// nvcc objects to a host-device function that may call the device's group.
#define PULSORA_CALLS_GROUP _Pragma("nv_exec_check_disable")
#else
#define PULSORA_CALLS_GROUP
#endif

namespace pulsora {

/// Number of partial results of a reduction. Element j goes to part j % kGroupLanes, in order of j;
/// then the second half of the parts is merged into the first, until one is left. The order
/// determines the bits of the result.
constexpr int kGroupLanes = 256;

/// The CPU's group. The GPU's is in cuda/core/group.cuh.
struct OneThread {
  /// Calls look(j, part) for every j < `size`, then merges by part.join(other). A Part starts as
  /// zeros.
  template <class Part, class Look>
  PULSORA_HD Part reduce(int64_t size, const Look &look) const {
    Part part[kGroupLanes] = {};
    for (int64_t j = 0; j < size; ++j) look(j, part[j % kGroupLanes]);
    for (int half = kGroupLanes / 2; half > 0; half /= 2) {
      for (int l = 0; l < half; ++l) part[l].join(part[l + half]);
    }
    return part[0];
  }
  /// Whether this thread writes the group's result.
  PULSORA_HD bool leads() const { return true; }
};

}  // namespace pulsora
