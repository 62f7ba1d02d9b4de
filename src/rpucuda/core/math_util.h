#pragma once

#include <algorithm>
#include <cstdint>

#include "core/check.h"
#include "core/context.h"
#include "core/cuda_api.h"
#include "core/exec.h"
#include "core/view.h"

namespace RPU {

// The linear algebra of the CPU backend. Matrices may be row major, column major, transposed or cut
// out; outputs share no element with inputs unless said otherwise. Every function throws InputError
// when shapes do not fit.

/// C = alpha * A B + beta * C, in the order of operations laid down at `reproducibleGemm`
/// (core/gemm.h), or by the system's BLAS when `exec.products` says so (ConfigError when that is
/// not compiled in). A is [m, K], B is [K, n], C is [m, n]. With beta = 0, C is not read.
void gemm(const CpuExec &exec, float alpha, MatrixView<const float> a, MatrixView<const float> b,
          float beta, MatrixView<float> c);

/// The same on the context's backend: everything above the seam multiplies with this.
inline void gemm(const Context &context, float alpha, MatrixView<const float> a,
                 MatrixView<const float> b, float beta, MatrixView<float> c) {
  if (context.onCpu()) {
    gemm(context.cpu, alpha, a, b, beta, c);
  } else {
    detail::cudaGemm(context, alpha, a, b, beta, c);
  }
}

/// C += A B, product by product in the order of k whatever the choice of products, so that a batch
/// may be cut anywhere.
void accumulate(const Context &context, MatrixView<const float> a, MatrixView<const float> b,
                MatrixView<float> c);

/// y = alpha * A x + beta * y; the same bits as `gemm` on one column. A is [m, K], x is [K], y is
/// [m].
void gemv(const CpuExec &exec, float alpha, MatrixView<const float> a, VectorView<const float> x,
          float beta, VectorView<float> y);

/// A += alpha * x y^T as fma(alpha, x_i * y_j, a_ij), the same bits as `gemm` with K = 1. A is [m,
/// n], x is [m], y is [n].
void ger(const CpuExec &exec, float alpha, VectorView<const float> x, VectorView<const float> y,
         MatrixView<float> a);

/// A *= alpha. With alpha = 0, A becomes 0 without being read.
void scal(float alpha, MatrixView<float> a);

/// dst = static_cast<Dst>(src), element by element, whatever the storage orders;
/// `elemcopy(a.transposed(), b)` is a tiled transposition. Integer targets truncate towards 0 and
/// must be able to hold the values.
template <class Src, class Dst>
void elemcopy(MatrixView<const Src> src, MatrixView<Dst> dst) {
  RPU_CHECK(InputError, src.rows == dst.rows && src.cols == dst.cols, "copy: [", src.rows, ", ",
            src.cols, "] does not fit into [", dst.rows, ", ", dst.cols, "]");
  if (!dst.isRowMajor() && dst.isColMajor()) {  // so that writes are sequential
    src = src.transposed();
    dst = dst.transposed();
  }
  // Tiles of which both sides fit the first cache, whichever of them is read or written across.
  const int64_t tile = src.isRowMajor() ? std::max<int64_t>(dst.cols, 1) : 32;
  for (int64_t j0 = 0; j0 < dst.cols; j0 += tile) {
    const int64_t j1 = std::min(dst.cols, j0 + tile);
    for (int64_t i = 0; i < dst.rows; ++i) {
      const VectorView<const Src> from = src.row(i);
      const VectorView<Dst> to = dst.row(i);
      for (int64_t j = j0; j < j1; ++j) to[j] = static_cast<Dst>(from[j]);
    }
  }
}

template <class Src, class Dst>
void elemcopy(MatrixView<Src> src, MatrixView<Dst> dst) {
  elemcopy(MatrixView<const Src>(src), dst);
}

/// dst = src between matrices of float32.
inline void copy(MatrixView<const float> src, MatrixView<float> dst) { elemcopy(src, dst); }
/// The same on the context's backend.
void copy(const Context &context, MatrixView<const float> src, MatrixView<float> dst);

}  // namespace RPU
