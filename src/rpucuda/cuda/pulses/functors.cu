// The functors of pulses/ on a GPU.

#include "cuda/core/for_each.cuh"
#include "pulses/pulse_train_functors.h"

namespace pulsora {

PULSORA_ON_GPU(PulseTrainScaler);
PULSORA_ON_GPU(LayoutChooser);
PULSORA_ON_GPU(LevelMaker);

}  // namespace pulsora
