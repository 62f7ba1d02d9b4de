#pragma once

#include <cstdint>
#include <vector>

// Linear algebra of small matrices in double precision, in host memory, row-major and without gaps.

namespace pulsora {

using SmallMatrix = std::vector<double>;

/// Eigenvalues of a symmetric [n, n] matrix in falling order, and eigenvectors as columns of
/// `vectors`: cyclic Jacobi rotations. `matrix` is overwritten.
void symmetricEigen(int64_t n, SmallMatrix &matrix, std::vector<double> &values,
                    SmallMatrix &vectors);

/// Inverse R^-1 of the upper triangular factor of a symmetric [n, n] matrix G = R^T R. False, with
/// `inverse` unspecified, unless G is safely positive definite.
bool inverseCholesky(int64_t n, const SmallMatrix &matrix, SmallMatrix &inverse);

/// Rotates pairs of rows of `a` [rows, cols] until all are orthogonal (one-sided Jacobi), and sorts
/// them by falling norm: a becomes diag(norms) V, and `left` [rows, rows] gets the rotations U^T;
/// the original a is U diag(norms) V.
void orthogonaliseRows(int64_t rows, int64_t cols, SmallMatrix &a, SmallMatrix &left,
                       std::vector<double> &norms);

/// Makes rows [first, rows) of `a` [rows, cols] an orthonormal completion of the rows before, from
/// e_1, e_2, ...: a unit vector of which less than half is outside the span is skipped, with a
/// smaller threshold if none would do. rows <= cols.
void completeRows(int64_t first, int64_t rows, int64_t cols, SmallMatrix &a);

/// Makes the rows of `a` [rows, cols] orthonormal in order (Gram-Schmidt); completeRows() replaces
/// a row that depends on earlier rows. rows <= cols.
void orthonormaliseRows(int64_t rows, int64_t cols, SmallMatrix &a);

}  // namespace pulsora
