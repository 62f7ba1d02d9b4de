// The functors of lrtt/ on a GPU.

#include "cuda/core/for_each.cuh"
#include "lrtt/functors.h"

namespace pulsora {

PULSORA_ON_GPU(GateGradient);
PULSORA_ON_GPU(SignDrawer);

}  // namespace pulsora
