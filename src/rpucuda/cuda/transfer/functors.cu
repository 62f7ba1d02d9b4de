// The functors of transfer/ on a GPU.

#include "cuda/core/for_each.cuh"
#include "transfer/line_buffer.h"
#include "transfer/line_functors.h"
#include "transfer/plan_formulas.h"
#include "transfer/program_targets.h"
#include "transfer/verify_functors.h"

namespace pulsora {

PULSORA_ON_GPU(UnitMatrix);
PULSORA_ON_GPU(DifferenceWriter);
PULSORA_ON_GPU(WholePulses);
PULSORA_ON_GPU(DrivenLines);
PULSORA_ON_GPU(LineProduct);
PULSORA_ON_GPU(LineCounts);
PULSORA_ON_GPU(Ones);
PULSORA_ON_GPU(TrainClips);
PULSORA_ON_GPU(Scaler);
PULSORA_ON_GPU(LineCollector);
PULSORA_ON_GPU(ChopperTurner);
PULSORA_ON_GPU(ChoppedInput);
PULSORA_ON_GPU(AutoRates);
PULSORA_SUM_ON_GPU(ProductTerm);
PULSORA_ON_GPU(PulseTrainDrives);
PULSORA_ON_GPU(TransferTargets);
PULSORA_ON_GPU(MissingWeights);
PULSORA_ON_GPU(RevisedTargets);
PULSORA_ON_GPU(RevisionTally);
PULSORA_ON_GPU(CellReadings);
PULSORA_ON_GPU(VerifySteering);
PULSORA_ON_GPU(RoundCounts);
PULSORA_ON_GPU(MissingReadings);

}  // namespace pulsora
