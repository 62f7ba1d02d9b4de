// The functors of transfer/ on a GPU.

#include "cuda/core/for_each.cuh"
#include "transfer/line_functors.h"
#include "transfer/plan_formulas.h"

namespace pulsora {

PULSORA_ON_GPU(UnitMatrix);
PULSORA_ON_GPU(DifferenceWriter);
PULSORA_ON_GPU(WholePulses);
PULSORA_SUM_ON_GPU(ProductTerm);
PULSORA_ON_GPU(PulseTrainDrives);

}  // namespace pulsora
