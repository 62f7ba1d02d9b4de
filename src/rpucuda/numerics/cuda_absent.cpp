// The GPU functions of numerics/ for a build without CUDA; CMake compiles this file only then.

#include "core/has_cuda.h"
#include "numerics/cuda_numerics.h"

namespace pulsora::detail {

void cudaRowAbsMax(const Context &, MatrixView<const float>, float *) { throwWithoutCuda(); }
void cudaCheckFinite(const Context &, MatrixView<const float>, MatrixView<const float>) {
  throwWithoutCuda();
}
int64_t cudaCountOutside(const Context &, const float *, const float *, const float *, int64_t) {
  throwWithoutCuda();
}

}  // namespace pulsora::detail
