// The functors of lrtt/ on a GPU.

#include "cuda/core/for_each.cuh"
#include "lrtt/filling.h"
#include "lrtt/functors.h"
#include "lrtt/rest.h"
#include "lrtt/step_limit.h"

namespace pulsora {

PULSORA_ON_GPU(GateGradient);
PULSORA_ON_GPU(SignDrawer);
PULSORA_ON_GPU(GramFactor);
PULSORA_ON_GPU(RestSolver);
PULSORA_ON_GPU(StepLimiter);
PULSORA_SUM_ON_GPU(ReachTerm);
PULSORA_SUM_ON_GPU(SquareTerm);

}  // namespace pulsora
