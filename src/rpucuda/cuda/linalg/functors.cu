// The functors of linalg/ on a GPU.

#include "cuda/core/for_each.cuh"
#include "linalg/matrix_functors.h"

namespace pulsora {

#define PULSORA_COPY_ON_GPU(Src, Dst)                                          \
  template void cudaForEach<ElementCopier<Src, Dst>>(const Context &, int64_t, \
                                                     const ElementCopier<Src, Dst> &);
PULSORA_FOR_EACH_COPY(PULSORA_COPY_ON_GPU)
#undef PULSORA_COPY_ON_GPU
PULSORA_ON_GPU(ElementScaler);
PULSORA_ON_GPU(MemoryCopier);
PULSORA_ON_GPU(NormalPairWriter);

}  // namespace pulsora
