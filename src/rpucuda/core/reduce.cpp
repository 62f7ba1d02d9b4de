#include "core/reduce.h"

#include "core/backend.h"
#include "core/cuda_api.h"
#include "core/math.h"

namespace RPU {

void rowAbsMax(const Context &context, MatrixView<const float> a, float *out) {
  if (!context.onCpu()) {
    detail::cudaRowAbsMax(context, a, out);
    return;
  }
  const int64_t grain = 1 + kStepsPerThread / (a.cols + 1);
  parallelRange(context, a.rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const VectorView<const float> row = a.row(i);
      float largest = 0.0f;
      for (int64_t j = 0; j < row.size; ++j) largest = RPU::max(largest, RPU::abs(row[j]));
      out[i] = largest;
    }
  });
}

}  // namespace RPU
