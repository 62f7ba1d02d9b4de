#include "numerics/abs_max.h"

#include "core/backend.h"
#include "core/isa_dispatch.h"
#include "numerics/cuda_numerics.h"

namespace pulsora {

void rowAbsMax(const Context &context, MatrixView<const float> a, float *out) {
  if (!context.onCpu()) {
    detail::cudaRowAbsMax(context, a, out);
    return;
  }
  const auto kernel = withIsa(context.cpu.isa, [](auto isa) { return &rowAbsMax<isa>; });
  const int64_t grain = 1 + kStepsPerThread / (a.cols + 1);
  parallelRange(context, a.rows, grain,
                [&](int64_t begin, int64_t end) { kernel(a, begin, end, out); });
}

float absMax(const Context &context, MatrixView<const float> a) {
  return withIsa(context.cpu.isa, [&](auto isa) { return absMax<isa>(a); });
}

double sumOfAbsMaxProducts(const Context &context, MatrixView<const float> x,
                           MatrixView<const float> d) {
  return withIsa(context.cpu.isa, [&](auto isa) { return sumOfAbsMaxProducts<isa>(x, d); });
}

}  // namespace pulsora
