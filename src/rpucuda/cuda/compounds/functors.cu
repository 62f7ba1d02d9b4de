// The functors of compounds/ on a GPU.

#include "compounds/transfer_functors.h"
#include "cuda/core/for_each.cuh"

namespace pulsora {

PULSORA_ON_GPU(ChainSum);

}  // namespace pulsora
