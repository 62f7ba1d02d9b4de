#pragma once

#include <type_traits>
#include <vector>

#include "core/context.h"
#include "core/view.h"
#include "numerics/half.h"

// Linear algebra on both backends: public API for simulations that bring their own algorithms.
//
// The context says where the elements lie and how the work is done. On a GPU all work is enqueued
// in the context's stream and nothing waits. Matrices may be row major, column major, transposed,
// cut out or strided; outputs share no element with inputs. Every function throws InputError,
// before it changes anything, when shapes do not fit.
//
// Bits: `accumulate`, `ger`, `scal` and the copies give one result on every machine and backend.
// So do `gemm` and `gemv` on the CPU, and on a GPU with GpuProducts::Reproducible. Otherwise a
// product of depth K is within (K + 2) 2^-23 of the sum of the magnitudes of its terms.

namespace pulsora {

/// C = alpha * A B + beta * C, in the order of operations of `reproducibleGemm` (linalg/gemm.h) on
/// the CPU, and as `context.gpuProducts` says on a GPU. A is [m, K], B is [K, n], C is [m, n]. With
/// beta = 0, C is not read.
void gemm(const Context &context, float alpha, MatrixView<const float> a, MatrixView<const float> b,
          float beta, MatrixView<float> c);

/// Allocates what gemm() needs in this context besides its matrices, so that gemm() cannot run out
/// of memory later.
void prepareProducts(const Context &context);

/// C += A B, product by product in the order of k, whatever the context's choice of products, so
/// that a batch may be split anywhere.
void accumulate(const Context &context, MatrixView<const float> a, MatrixView<const float> b,
                MatrixView<float> c);

/// y = alpha * A x + beta * y; with reproducible products, the bits equal those of `gemm` with one
/// column. A is [m, K], x is [K], y is [m]. With beta = 0, y is not read.
void gemv(const Context &context, float alpha, MatrixView<const float> a, VectorView<const float> x,
          float beta, VectorView<float> y);

/// A += alpha * x y^T as fma(alpha, x_i * y_j, a_ij), whatever the context's choice of products. A
/// is [m, n], x is [m], y is [n].
void ger(const Context &context, float alpha, VectorView<const float> x, VectorView<const float> y,
         MatrixView<float> a);

/// A *= alpha. With alpha = 0, A becomes 0 without being read.
void scal(const Context &context, float alpha, MatrixView<float> a);

namespace detail {
/// Defined in math_util.cpp for the types of PULSORA_FOR_EACH_COPY (linalg/matrix_functors.h).
template <class Src, class Dst>
void copyElements(const Context &context, MatrixView<const Src> from, MatrixView<Dst> to);
}  // namespace detail

/// to = from, element by element, between matrices of one shape and any two layouts. Elements are
/// float, double, Half, int32_t, int64_t or uint8_t; where the two types differ, one of them is
/// float. Floating-point targets get the nearest value (ties to even; a Half saturates at +-65504);
/// integer targets truncate towards 0 and must be able to hold the values.
template <class Src, class Dst>
void elemcopy(const Context &context, MatrixView<Src> from, MatrixView<Dst> to) {
  using From = std::remove_const_t<Src>;
  static_assert(
      std::is_same_v<From, Dst> || std::is_same_v<From, float> || std::is_same_v<Dst, float>,
      "elemcopy converts from float or to float; go through a matrix of floats");
  detail::copyElements<From, Dst>(context, from, to);
}

/// to = from between matrices of float, bit by bit.
inline void copy(const Context &context, MatrixView<const float> from, MatrixView<float> to) {
  elemcopy(context, from, to);
}

/// Copies a matrix from the context's backend to the host, row by row.
std::vector<float> onHost(const Context &context, MatrixView<const float> matrix);

/// to = from^T: from is [m, n], to is [n, m]. Works tile by tile, so that both sides are read and
/// written along their lines.
void transpose(const Context &context, MatrixView<const float> from, MatrixView<float> to);

}  // namespace pulsora
