// The GPU functions of forecast/ for a build without CUDA; CMake compiles this file only then.

#include "core/has_cuda.h"
#include "forecast/gru_kernels.h"
#include "forecast/truncated_svd.h"

namespace pulsora {

bool cudaEncode(const Context &, MatrixView<const float>, MatrixView<const float>,
                VectorView<const float>, MatrixView<float>) {
  throwWithoutCuda();
}
bool cudaRollout(const Context &, const EnsembleShape &, const EnsembleWeights &,
                 MatrixView<const float>, const float *, int64_t, bool, const RolloutOutputs &,
                 const RolloutOptions &) {
  throwWithoutCuda();
}

void cudaInverseCholesky(const Context &, int64_t, const double *, float *, uint32_t *) {
  throwWithoutCuda();
}
void cudaSettleSigns(const Context &, MatrixView<float>, MatrixView<float>) { throwWithoutCuda(); }

}  // namespace pulsora
