// The element functors on the GPU, each once.

#include "array/cell_functors.h"
#include "core/matrix_functors.h"
#include "cuda/core/for_each.cuh"
#include "forecast/gru_functors.h"
#include "forecast/residual_memory.h"
#include "forecast/truncated_svd.h"
#include "lowrank/functors.h"
#include "lrtt/functors.h"
#include "periphery/joined_functors.h"
#include "periphery/read_stages.h"
#include "pulses/train_functors.h"
#include "tile/grid_functors.h"
#include "transfer/line_functors.h"
#include "transfer/plan_formulas.h"

#define RPU_ON_GPU(Functor) \
  template void cudaForEach<Functor>(const Context &, int64_t, const Functor &)
#define RPU_SUM_ON_GPU(Term) \
  template void cudaSumRows<Term>(const Context &, int64_t, int64_t, const Term &, double *)

namespace RPU {

// core/matrix_functors.h
#define RPU_COPY_ON_GPU(Src, Dst)                                              \
  template void cudaForEach<ElementCopier<Src, Dst>>(const Context &, int64_t, \
                                                     const ElementCopier<Src, Dst> &);
RPU_FOR_EACH_COPY(RPU_COPY_ON_GPU)
#undef RPU_COPY_ON_GPU
RPU_ON_GPU(ElementScaler);
RPU_ON_GPU(NormalPairWriter);

// array/cell_functors.h
RPU_ON_GPU(SpreadSampler);
RPU_ON_GPU(WeightAdder);
RPU_ON_GPU(VisibleWeight);
RPU_ON_GPU(StoredWeight);
RPU_ON_GPU(DescribeSeen);
RPU_ON_GPU(ColumnScaler);
RPU_ON_GPU(ScaledCopier);

// pulses/train_functors.h
RPU_ON_GPU(TrainScaler);
RPU_ON_GPU(LayoutChooser);
RPU_ON_GPU(LevelMaker);

// periphery/read_stages.h
RPU_ON_GPU(MeasureRow);
RPU_ON_GPU(AverageScales);
RPU_ON_GPU(ConvertInput);
RPU_ON_GPU(SumConverted);
RPU_ON_GPU(FinishOutput);
RPU_ON_GPU(NextRead);
RPU_ON_GPU(Magnitudes);
RPU_ON_GPU(ReformInput);
RPU_ON_GPU(ReadAsymmetry);
RPU_ON_GPU(ReadDeviation);

// periphery/joined_functors.h
RPU_ON_GPU(ScaledAdder);
RPU_ON_GPU(GateMultiplier);

// transfer/line_functors.h
RPU_ON_GPU(UnitMatrix);
RPU_ON_GPU(DifferenceWriter);
RPU_ON_GPU(WholePulses);
RPU_SUM_ON_GPU(ProductTerm);

// lowrank/functors.h
#define RPU_LOW_RANK_ON_GPU(T) \
  RPU_ON_GPU(Widener<T>);      \
  RPU_ON_GPU(Narrower<T>);     \
  RPU_ON_GPU(CodeGate<T>);
RPU_FOR_EACH_ELEMENT(RPU_LOW_RANK_ON_GPU)
#undef RPU_LOW_RANK_ON_GPU
RPU_ON_GPU(CodeGradient);

// lrtt/functors.h
RPU_ON_GPU(GateGradient);
RPU_ON_GPU(SignDrawer);

// transfer/plan_formulas.h
RPU_ON_GPU(TrainDrives);

// tile/grid_functors.h
RPU_ON_GPU(BlockPacker);
RPU_ON_GPU(BlockSummer);

// forecast/
RPU_ON_GPU(Encoded);
RPU_ON_GPU(GatesBefore);
RPU_ON_GPU(StepBefore);
RPU_ON_GPU(StepAfter);
RPU_ON_GPU(Heads);
RPU_ON_GPU(CorrectionAdder);
RPU_SUM_ON_GPU(NonFiniteTerm);
RPU_SUM_ON_GPU(GramTerm);
RPU_SUM_ON_GPU(PartTerm);

}  // namespace RPU
