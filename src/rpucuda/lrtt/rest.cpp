#include "lrtt/rest.h"

#include "core/backend.h"
#include "linalg/math_util.h"

namespace pulsora {

void RestKeeper::reserve(const Context &context, int64_t outputs, int64_t rank) {
  gram_.reserve(context, rank * rank);
  factor_.reserve(context, rank * rank);
  products_.reserve(context, outputs * rank);
  work_.reserve(context, outputs * rank);
  a_.reserve(context, outputs * rank);
  held_.reserve(context, outputs);
  any_.reserve(context, 1);
}

MatrixView<const float> RestKeeper::fit(const Context &context, MatrixView<const float> r,
                                        MatrixView<const float> b, double scale, const float *signs,
                                        float tolerance) {
  reserve(context, r.rows, b.rows);
  Context exact = context;
  exact.gpuProducts = GpuProducts::Reproducible;
  gemm(exact, 1.0f, b, b.transposed(), 0.0f, rowMajor(gram_.data(), b.rows, b.rows));
  const auto products = rowMajor(products_.data(), r.rows, b.rows);
  gemm(exact, 1.0f, r, b.transposed(), 0.0f, products);
  forEach(context, 1, GramFactor{gram_.data(), b.rows, factor_.data()});
  forEach(context, r.rows,
          RestSolver{factor_.data(), products, scale, signs, work_.data(), a_.data()});
  if (tolerance > 0.0f) {
    detail::fillZero(context, any_.data(), any_.bytes());
    const RowHolder holder{r, b, tolerance, scale, signs, a_.data(), held_.data(), any_.data()};
    if (context.onCpu()) {
      parallelRange(context, r.rows, kStepsPerThread, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) holder(i);
      });
    } else {
      cudaHoldRows(context, holder);
    }
  }
  return rowMajor<const float>(a_.data(), r.rows, b.rows);
}

}  // namespace pulsora
