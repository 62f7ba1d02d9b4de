// The GPU functions of transfer/ for a build without CUDA; CMake compiles this file only then.

#include "core/has_cuda.h"
#include "transfer/transfer_ledger.h"
#include "transfer/transfer_plan.h"

namespace pulsora {

void cudaPlanTransfer(const Context &, const TransferPlanner &, uint32_t *) { throwWithoutCuda(); }
void cudaAlignRows(const Context &, MatrixView<const float>, const TransferFactors &, float,
                   double *, double *) {
  throwWithoutCuda();
}
void cudaCountTransfer(const Context &, const TransferTally &) { throwWithoutCuda(); }

}  // namespace pulsora
