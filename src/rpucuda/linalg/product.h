#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "core/check.h"
#include "core/view.h"

// Parts shared by the matrix products of both backends: the check of shapes, and matrices as BLAS
// describes them.

namespace pulsora {

/// Throws InputError, naming `function`, unless C = A B has fitting shapes.
inline void checkProduct(const char *function, MatrixView<const float> a, MatrixView<const float> b,
                         MatrixView<const float> c) {
  PULSORA_CHECK(InputError, a.cols == b.rows && c.rows == a.rows && c.cols == b.cols, function,
                ": A is [", a.rows, ", ", a.cols, "], B is [", b.rows, ", ", b.cols, "] and C is [",
                c.rows, ", ", c.cols,
                "]; A needs as many columns as B has rows, C the rows of A and the columns of B");
}

/// Turns C = A B into C^T = B^T A^T.
template <class T, class C>
void transposeProduct(MatrixView<const T> &a, MatrixView<const T> &b, MatrixView<C> &c) {
  std::swap(a, b);
  a = a.transposed();
  b = b.transposed();
  c = c.transposed();
}

/// A view as BLAS describes a matrix: the distance of neighbouring rows (of columns, when
/// `transposed`), between which elements are adjacent.
struct BlasOperand {
  bool transposed;
  int64_t lead;
  bool ordered;  ///< the view is row major or column major, and its lines do not overlap
  bool counted;  ///< its sizes fit the int of BLAS

  template <class T>
  static BlasOperand of(MatrixView<T> m) {
    const bool rowMajor = m.isRowMajor() && (m.rows <= 1 || m.rowStride >= m.cols);
    const bool colMajor = m.isColMajor() && (m.cols <= 1 || m.colStride >= m.rows);
    const int64_t lead = rowMajor ? std::max({m.rows > 1 ? m.rowStride : 1, m.cols, int64_t{1}})
                                  : std::max({m.cols > 1 ? m.colStride : 1, m.rows, int64_t{1}});
    return {!rowMajor, lead, rowMajor || colMajor,
            std::max({lead, m.rows, m.cols}) <= std::numeric_limits<int>::max()};
  }
  bool fits() const { return ordered && counted; }
};

}  // namespace pulsora
