#include "lowrank/adapter_gradients.h"

#include "linalg/math_util.h"
#include "lowrank/kernels.h"
#include "lowrank/widened.h"

namespace pulsora {

void adapterGradients(const Context &context, ConstAnyMatrix dc, ConstAnyMatrix a, ConstAnyMatrix b,
                      bool accumulate, MatrixView<float> da, MatrixView<float> db) {
  constexpr const char *kName = "adapterGradients";
  requireSize(kName, "a", a, dc.rows, a.cols);
  requireSize(kName, "b", b, a.cols, dc.cols);
  if (da.data) requireSize(kName, "da", da, a.rows, a.cols);
  if (db.data) requireSize(kName, "db", db, b.rows, b.cols);
  Widened dcFloats, aFloats, bFloats;
  const MatrixView<const float> bs = bFloats.of(context, b);
  if (!context.onCpu() && dc.type == ElementType::Float32 &&
      cudaAdapterGradients(context, dc.as<float>(), aFloats.of(context, a), bs, accumulate, da, db))
    return;
  const int64_t atATime = rowsAtATime(context, dc.cols + a.cols);
  const float beta = accumulate ? 1.0f : 0.0f;
  for (int64_t begin = 0; begin == 0 || begin < dc.rows; begin += atATime) {
    const int64_t count = pulsora::min(atATime, dc.rows - begin);
    const MatrixView<const float> d = dcFloats.of(context, dc.rowRange(begin, count));
    if (da.data) {
      gemm(context, 1.0f, d, bs.transposed(), beta, da.block(begin, 0, count, da.cols));
    }
    if (db.data) {
      const MatrixView<const float> as = aFloats.of(context, a.rowRange(begin, count));
      gemm(context, 1.0f, as.transposed(), d, begin == 0 ? beta : 1.0f, db);
    }
  }
}

}  // namespace pulsora
