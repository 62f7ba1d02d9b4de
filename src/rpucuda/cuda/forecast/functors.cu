// The functors of forecast/ on a GPU.

#include "cuda/core/for_each.cuh"
#include "forecast/gru_functors.h"
#include "forecast/read_functors.h"
#include "forecast/truncated_svd.h"

namespace pulsora {

PULSORA_ON_GPU(Encoded);
PULSORA_ON_GPU(GatesBefore);
PULSORA_ON_GPU(StepBefore);
PULSORA_ON_GPU(StepAfter);
PULSORA_ON_GPU(Heads);
PULSORA_ON_GPU(Dropped);
PULSORA_ON_GPU(RoundedToHalf);
PULSORA_ON_GPU(NormalisedRow);
PULSORA_SUM_ON_GPU(NonFiniteTerm);
PULSORA_SUM_ON_GPU(GramTerm);
PULSORA_SUM_ON_GPU(PartTerm);

}  // namespace pulsora
