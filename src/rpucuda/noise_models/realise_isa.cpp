#include "noise_model_list.h"
#include "noise_models/realise.h"
#include "noise_models/realise_lanes.h"

namespace pulsora {

template <Isa isa, class Model>
void realiseGroups(const Realise<Model> &realise, int64_t begin, int64_t end) {
  RealiseLanes<isa, Model>::run(realise, begin, end);
}

#define PULSORA_REALISE(Model)                                                        \
  template void realiseGroups<Isa::PULSORA_ISA, Model>(const Realise<Model> &realise, \
                                                       int64_t begin, int64_t end);
PULSORA_FOR_EACH_NOISE_MODEL(PULSORA_REALISE)
#undef PULSORA_REALISE

}  // namespace pulsora
