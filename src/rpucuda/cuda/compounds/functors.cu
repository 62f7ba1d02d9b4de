// The functors of compounds/ on a GPU.

#include "compounds/weighted_arrays.h"
#include "cuda/core/for_each.cuh"

namespace pulsora {

PULSORA_ON_GPU(WeightedSum);

}  // namespace pulsora
