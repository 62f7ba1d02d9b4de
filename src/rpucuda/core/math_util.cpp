#include "core/math_util.h"

#include "core/backend.h"
#include "core/gemm.h"
#include "core/matrix_functors.h"

namespace RPU {
namespace {

template <class T>
MatrixView<T> asColumn(VectorView<T> v) {
  return {v.data, v.size, 1, v.stride, 1};
}

}  // namespace

void gemm(const CpuExec &exec, float alpha, MatrixView<const float> a, MatrixView<const float> b,
          float beta, MatrixView<float> c) {
  if (exec.products == Products::Blas) {
    blasGemm(alpha, a, b, beta, c);
  } else {
    reproducibleGemm(alpha, a, b, beta, c, exec.threads, exec.isa);
  }
}

void accumulate(const Context &context, MatrixView<const float> a, MatrixView<const float> b,
                MatrixView<float> c) {
  if (context.onCpu()) {
    reproducibleAccumulate(a, b, c, context.cpu.threads, context.cpu.isa);
  } else {
    detail::cudaAccumulate(context, a, b, c);
  }
}

void gemv(const CpuExec &exec, float alpha, MatrixView<const float> a, VectorView<const float> x,
          float beta, VectorView<float> y) {
  gemm(exec, alpha, a, asColumn(x), beta, asColumn(y));
}

void ger(const CpuExec &exec, float alpha, VectorView<const float> x, VectorView<const float> y,
         MatrixView<float> a) {
  gemm(exec, alpha, asColumn(x), asColumn(y).transposed(), 1.0f, a);
}

void copy(const Context &context, MatrixView<const float> src, MatrixView<float> dst) {
  forEach(context, src.size(), ElementCopier{src, dst});
}

void scal(float alpha, MatrixView<float> a) {
  if (!a.isRowMajor()) a = a.transposed();
  for (int64_t i = 0; i < a.rows; ++i) {
    const VectorView<float> row = a.row(i);
    for (int64_t j = 0; j < row.size; ++j) row[j] = alpha == 0.0f ? 0.0f : alpha * row[j];
  }
}

}  // namespace RPU
