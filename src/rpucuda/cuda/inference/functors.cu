// The functors of inference/ on a GPU.

#include "cuda/core/for_each.cuh"
#include "inference/compensation.h"
#include "inference/functors.h"
#include "inference/modifiers.h"
#include "inference/pulse_writing.h"
#include "inference/weight_slices.h"
#include "inference/weight_span.h"

namespace pulsora {

PULSORA_ON_GPU(Filler);
PULSORA_ON_GPU(WeightModifier);
PULSORA_ON_GPU(Spreader);
PULSORA_ON_GPU(OutputCompensation);
PULSORA_ON_GPU(RowNormaliser);
PULSORA_ON_GPU(RowQuantile);
PULSORA_ON_GPU(FactorOfColumns);
PULSORA_ON_GPU(FactorOfRows);
PULSORA_ON_GPU(ReferenceColumn);
PULSORA_ON_GPU(DigitTaker);
PULSORA_ON_GPU(ConductanceTaker);
PULSORA_ON_GPU(ConductanceMaker);
PULSORA_ON_GPU(WriteCounter);
PULSORA_ON_GPU(RowSpan);
PULSORA_ON_GPU(SpanMiddle);
PULSORA_ON_GPU(SpanTaker);
PULSORA_ON_GPU(SpanReader);
PULSORA_ON_GPU(TableTaker);
PULSORA_ON_GPU(DigitAdder);
PULSORA_ON_GPU(ReadAdder);
PULSORA_ON_GPU(OneHotAdder);
PULSORA_SUM_ON_GPU(WeightedReadings);
PULSORA_SUM_ON_GPU(MagnitudeTerm);
PULSORA_SUM_ON_GPU(SquaredDifference);

}  // namespace pulsora
