#include "core/reduce.h"

#include "core/backend.h"
#include "core/cuda_api.h"
#include "core/magnitudes.h"
#include "core/with_isa.h"

namespace RPU {

void rowAbsMax(const Context &context, MatrixView<const float> a, float *out) {
  if (!context.onCpu()) {
    detail::cudaRowAbsMax(context, a, out);
    return;
  }
  const auto kernel = withIsa(context.cpu.isa, [](auto isa) { return &largestOfRows<isa>; });
  const int64_t grain = 1 + kStepsPerThread / (a.cols + 1);
  parallelRange(context, a.rows, grain,
                [&](int64_t begin, int64_t end) { kernel(a, begin, end, out); });
}

}  // namespace RPU
