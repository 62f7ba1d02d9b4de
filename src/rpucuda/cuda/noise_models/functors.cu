// The functors of noise_models/ on a GPU.

#include "cuda/core/for_each.cuh"
#include "noise_model_list.h"
#include "noise_models/realise.h"

namespace pulsora {

#define PULSORA_REALISE_ON_GPU(Model) \
  PULSORA_ON_GPU(Realise<Model>);     \
  PULSORA_ON_GPU(RealiseReadings<Model>);
PULSORA_FOR_EACH_NOISE_MODEL(PULSORA_REALISE_ON_GPU)
#undef PULSORA_REALISE_ON_GPU

}  // namespace pulsora
