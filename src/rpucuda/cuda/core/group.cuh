#pragma once

#include "core/group.h"

namespace pulsora {

/// A block of kGroupLanes threads, a thread per part.
struct ThreadBlock {
  template <class Part, class Look>
  __device__ Part reduce(int64_t size, const Look &look) const {
    __shared__ Part parts[kGroupLanes];
    const int lane = static_cast<int>(threadIdx.x);
    Part mine{};
#pragma unroll 4
    for (int64_t j = lane; j < size; j += kGroupLanes) look(j, mine);
    __syncthreads();  // an earlier result may still be read
    parts[lane] = mine;
    __syncthreads();
    for (int half = kGroupLanes / 2; half > 0; half /= 2) {
      if (lane < half) parts[lane].join(parts[lane + half]);
      __syncthreads();
    }
    return parts[0];
  }
  __device__ bool leads() const { return threadIdx.x == 0; }
};

}  // namespace pulsora
