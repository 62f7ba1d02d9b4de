// The functors of compounds/ on a GPU.

#include "compounds/mixed_precision.h"
#include "compounds/one_sided.h"
#include "compounds/vector.h"
#include "compounds/weighted_arrays.h"
#include "cuda/core/for_each.cuh"

namespace pulsora {

PULSORA_ON_GPU(WeightedSum);
PULSORA_ON_GPU(ChosenRows);
PULSORA_ON_GPU(RefreshChoice);
PULSORA_ON_GPU(OneSign);
PULSORA_ON_GPU(BinnedInput);
PULSORA_ON_GPU(LagTaker);

}  // namespace pulsora
