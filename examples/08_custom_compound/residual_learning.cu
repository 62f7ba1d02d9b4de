// Compiled in a build with CUDA: the functor of this compound on a GPU.
#include <pulsora/for_each.cuh>

#include "residual_learning.h"

namespace pulsora {

PULSORA_ON_GPU(ResidualPulses);

}  // namespace pulsora
