// The GPU functions of lrtt/ for a build without CUDA; CMake compiles this file only then.

#include "core/has_cuda.h"
#include "lrtt/projection.h"
#include "lrtt/rest.h"

namespace pulsora {

void cudaProject(const Context &, const AdapterProjection &) { throwWithoutCuda(); }
void cudaHoldRows(const Context &, const RowHolder &) { throwWithoutCuda(); }

}  // namespace pulsora
