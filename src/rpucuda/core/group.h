#pragma once

#include <cstdint>

#include "core/platform.h"

// Reductions that one thread of the CPU or a whole block of the GPU carries out, with the same
// bits. A function that needs them is a template over the group, and RPU_CALLS_GROUP stands before
// it.

#if defined(__CUDACC__)
// nvcc objects to a host-device function that may call the device's group.
#define RPU_CALLS_GROUP _Pragma("nv_exec_check_disable")
#else
#define RPU_CALLS_GROUP
#endif

namespace RPU {

/// A range is reduced in this many parts, element j in part j % kGroupLanes in order, and the parts
/// pairwise, halves apart: the order is part of the result's bits.
constexpr int kGroupLanes = 256;

/// The CPU's group. The GPU's is in cuda/core/group.cuh.
struct OneThread {
  /// look(j, part) for every j below `size`; then part.join(other). A Part starts as zeros.
  template <class Part, class Look>
  RPU_HD Part reduce(int64_t size, const Look &look) const {
    Part part[kGroupLanes] = {};
    for (int64_t j = 0; j < size; ++j) look(j, part[j % kGroupLanes]);
    for (int half = kGroupLanes / 2; half > 0; half /= 2) {
      for (int l = 0; l < half; ++l) part[l].join(part[l + half]);
    }
    return part[0];
  }
  /// Whether this thread writes what the group has found.
  RPU_HD bool leads() const { return true; }
};

}  // namespace RPU
