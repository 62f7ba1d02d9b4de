// The GPU functions of lowrank/ for a build without CUDA; CMake compiles this file only then.

#include "core/has_cuda.h"
#include "lowrank/kernels.h"

namespace pulsora {

bool cudaGatedLowRank(const Context &, const GatedLowRank &, ConstAnyMatrix, AnyMatrix) {
  throwWithoutCuda();
}
bool cudaGatedLowRankLinear(const Context &, const GatedLowRank &, ConstAnyMatrix, ConstAnyMatrix,
                            AnyMatrix) {
  throwWithoutCuda();
}
bool cudaGatedLowRankLinearPays(const Context &, const GatedLowRank &, ConstAnyMatrix,
                                ConstAnyMatrix, AnyMatrix) {
  throwWithoutCuda();
}
bool cudaGatedLowRankBackward(const Context &, const GatedLowRank &, ConstAnyMatrix,
                              const GatedGradients &) {
  throwWithoutCuda();
}
bool cudaAdapterGradients(const Context &, MatrixView<const float>, MatrixView<const float>,
                          MatrixView<const float>, const AdapterGradient &,
                          const AdapterGradient &) {
  throwWithoutCuda();
}
int64_t cudaGatedLowRankScratch(const Context &, const GatedLowRank &, ConstAnyMatrix,
                                const GatedGradients &) {
  throwWithoutCuda();
}

}  // namespace pulsora
