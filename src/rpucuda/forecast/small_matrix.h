#pragma once

#include <cstdint>
#include <vector>

// Linear algebra of small matrices in double precision, in host memory, row-major and without gaps.

namespace pulsora {

using SmallMatrix = std::vector<double>;

/// Eigenvalues of a symmetric [n, n] matrix in falling order, and eigenvectors as columns of
/// `vectors`: cyclic Jacobi rotations. `matrix` is used up.
void symmetricEigen(int64_t n, SmallMatrix &matrix, std::vector<double> &values,
                    SmallMatrix &vectors);

/// Inverse R^-1 of the upper triangular factor of a symmetric [n, n] matrix G = R^T R. False, with
/// `inverse` unspecified, unless G is safely positive definite.
bool inverseCholesky(int64_t n, const SmallMatrix &matrix, SmallMatrix &inverse);

/// Rotates the rows of `a` [rows, cols] against each other until they are orthogonal (one-sided
/// Jacobi), and sorts them by falling norm: a becomes diag(norms) V, and the rotations U^T go to
/// `left` [rows, rows], so that what a was is U diag(norms) V.
void orthogonaliseRows(int64_t rows, int64_t cols, SmallMatrix &a, SmallMatrix &left,
                       std::vector<double> &norms);

/// Makes rows [first, rows) of `a` [rows, cols] an orthonormal completion of those before, from e_1,
/// e_2, ...: a unit vector of which less than half is left is skipped. Where none of them would be
/// left, less is asked for. rows <= cols.
void completeRows(int64_t first, int64_t rows, int64_t cols, SmallMatrix &a);

/// Makes the rows of `a` [rows, cols] orthonormal, each from itself and those before (Gram-Schmidt);
/// completeRows() stands in for a row that depends on them. rows <= cols.
void orthonormaliseRows(int64_t rows, int64_t cols, SmallMatrix &a);

}  // namespace pulsora
