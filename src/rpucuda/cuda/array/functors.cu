// The functors of array/ on a GPU.

#include "array/cell_functors.h"
#include "array/line_copies.h"
#include "array/program_cells.h"
#include "array/retention.h"
#include "cuda/core/for_each.cuh"

namespace pulsora {

PULSORA_ON_GPU(SpreadSampler);
PULSORA_ON_GPU(WeightAdder);
PULSORA_ON_GPU(VisibleWeight);
PULSORA_ON_GPU(StoredWeight);
PULSORA_ON_GPU(DescribeSeen);
PULSORA_ON_GPU(ColumnScaler);
PULSORA_ON_GPU(ScaledCopier);
PULSORA_ON_GPU(ProgramStart);
PULSORA_ON_GPU(SlotAdder);
PULSORA_ON_GPU(LineReader);
PULSORA_ON_GPU(TapReader);
PULSORA_ON_GPU(LineWriter);
PULSORA_ON_GPU(RelativeWeight);
PULSORA_ON_GPU(DriftedStored);
PULSORA_ON_GPU(SeenAtAge);

}  // namespace pulsora
