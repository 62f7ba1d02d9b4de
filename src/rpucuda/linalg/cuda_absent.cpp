// The GPU functions of linalg/ for a build without CUDA; CMake compiles this file only then.

#include "core/has_cuda.h"
#include "linalg/cuda_products.h"

namespace pulsora::detail {

void cudaPrepareProducts(const Context &) { throwWithoutCuda(); }
void cudaGemm(const Context &, float, MatrixView<const float>, MatrixView<const float>, float,
              MatrixView<float>) {
  throwWithoutCuda();
}
void cudaAccumulate(const Context &, MatrixView<const float>, MatrixView<const float>,
                    MatrixView<float>) {
  throwWithoutCuda();
}
void cudaTakePatches(const Context &, const PatchedImages &, float *) { throwWithoutCuda(); }

}  // namespace pulsora::detail
