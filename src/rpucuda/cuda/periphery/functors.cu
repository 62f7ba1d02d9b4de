// The functors of periphery/ on a GPU.

#include "cuda/core/for_each.cuh"
#include "periphery/additive_functors.h"
#include "periphery/further_products.h"
#include "periphery/one_hot_read.h"
#include "periphery/quiet_input.h"
#include "periphery/read_stages.h"
#include "periphery/slice_functors.h"
#include "periphery/wire_solver.h"

namespace pulsora {

PULSORA_ON_GPU(MeasureRow);
PULSORA_ON_GPU(FirstScale);
PULSORA_ON_GPU(QuietInput);
PULSORA_ON_GPU(AverageScales);
PULSORA_ON_GPU(ConvertInput);
PULSORA_ON_GPU(JoinParts);
PULSORA_ON_GPU(SumConverted);
PULSORA_ON_GPU(FinishOutput);
PULSORA_ON_GPU(NegativeInputs);
PULSORA_ON_GPU(NextRead);
PULSORA_ON_GPU(Magnitudes);
PULSORA_ON_GPU(ReformInput);
PULSORA_ON_GPU(ReadAsymmetry);
PULSORA_ON_GPU(ReadDeviation);
PULSORA_ON_GPU(SliceInput);
PULSORA_ON_GPU(SliceAdder);
PULSORA_ON_GPU(SliceResult);
PULSORA_ON_GPU(WirePivots);
PULSORA_ON_GPU(WireStart);
PULSORA_ON_GPU(OutputLines);
PULSORA_ON_GPU(InputLines);
PULSORA_ON_GPU(ScaledAdder);
PULSORA_ON_GPU(GateMultiplier);
PULSORA_SUM_ON_GPU(OneHotMagnitude);

}  // namespace pulsora
