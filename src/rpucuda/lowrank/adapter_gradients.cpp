#include "lowrank/adapter_gradients.h"

#include "linalg/math_util.h"
#include "lowrank/kernels.h"
#include "lowrank/widened.h"

namespace pulsora {

void adapterGradients(const Context &context, ConstAnyMatrix dc, ConstAnyMatrix a, ConstAnyMatrix b,
                      const AdapterGradient &da, const AdapterGradient &db) {
  constexpr const char *kName = "adapterGradients";
  requireSize(kName, "a", a, dc.rows, a.cols);
  requireSize(kName, "b", b, a.cols, dc.cols);
  if (da.to.data) requireSize(kName, "da", da.to, a.rows, a.cols);
  if (db.to.data) requireSize(kName, "db", db.to, b.rows, b.cols);
  if (!da.to.data && !db.to.data) return;
  Widened dcFloats, aFloats, bFloats;
  MatrixView<const float> bs{nullptr, b.rows, b.cols, b.cols, 1};
  if (da.to.data) bs = bFloats.of(context, b);
  if (!context.onCpu() && dc.type == ElementType::Float32) {
    MatrixView<const float> as{nullptr, a.rows, a.cols, a.cols, 1};
    if (db.to.data) as = aFloats.of(context, a);
    if (cudaAdapterGradients(context, dc.as<float>(), as, bs, da, db)) return;
  }
  const auto beta = [](bool accumulates) { return accumulates ? 1.0f : 0.0f; };
  const int64_t atATime = rowsAtATime(context, dc.cols + a.cols);
  for (int64_t begin = 0; begin == 0 || begin < dc.rows; begin += atATime) {
    const int64_t count = pulsora::min(atATime, dc.rows - begin);
    const MatrixView<const float> d = dcFloats.of(context, dc.rowRange(begin, count));
    if (da.to.data) {
      const MatrixView<float> rows = da.to.block(begin, 0, count, a.cols);
      gemm(context, 1.0f, d, bs.transposed(), beta(da.accumulates), rows);
    }
    if (db.to.data) {
      const MatrixView<const float> as = aFloats.of(context, a.rowRange(begin, count));
      gemm(context, 1.0f, as.transposed(), d, beta(begin > 0 || db.accumulates), db.to);
    }
  }
}

}  // namespace pulsora
