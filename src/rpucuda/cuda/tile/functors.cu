// The functors of tile/ on a GPU.

#include "cuda/core/for_each.cuh"
#include "tile/grid_functors.h"

namespace pulsora {

PULSORA_ON_GPU(FlagTaker);
PULSORA_ON_GPU(BlockPacker);
PULSORA_ON_GPU(BlockSummer);

}  // namespace pulsora
