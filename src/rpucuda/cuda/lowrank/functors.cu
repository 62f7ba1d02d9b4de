// The functors of lowrank/ on a GPU.

#include "cuda/core/for_each.cuh"
#include "lowrank/functors.h"

namespace pulsora {

#define PULSORA_LOW_RANK_ON_GPU(T) \
  PULSORA_ON_GPU(Widener<T>);      \
  PULSORA_ON_GPU(Narrower<T>);     \
  PULSORA_ON_GPU(CodeGate<T>);
PULSORA_FOR_EACH_ELEMENT(PULSORA_LOW_RANK_ON_GPU)
#undef PULSORA_LOW_RANK_ON_GPU
PULSORA_ON_GPU(CodeGradient);

}  // namespace pulsora
