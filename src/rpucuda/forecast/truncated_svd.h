#pragma once

#include <cstdint>

#include "core/context.h"
#include "core/view.h"

namespace pulsora {

enum class SvdMethod {
  Randomised,  ///< a random subspace, improved by power steps: for few triplets of large matrices
  Gram,        ///< eigenvectors of A A^T or A^T A in double precision; for a short side of up to 64
  Exact,       ///< rotations in double precision, in host memory; for a short side of up to 1024
};

struct SvdOptions {
  SvdMethod method = SvdMethod::Randomised;
  int64_t oversampling = 16;  ///< Randomised: columns of the subspace beyond k
  int64_t powerSteps = 4;     ///< Randomised: how often A^T and A are applied
  uint64_t seed = 0;          ///< Randomised: seed of the subspace
};

constexpr float kNearlyLargest = 1.0f - 0x1p-10f;
constexpr int64_t kMostGramLines = 64;
constexpr int64_t kMostExactLines = 1024;

/// A [m, n] ~ u diag(s) v with u [m, k] and v [k, n] orthonormal and s [k] falling; all in the
/// backend's memory. Returns 0, or 1 if an element of A is not finite: then all results are NaN.
///
/// The numerical rank r counts singular values above max(m, n) 2^-23 s_0. Beyond it s is exactly 0,
/// and u and v are completed from unit vectors. Of each row of v, the first element whose magnitude
/// is at least (1 - 2^-10) times the largest is positive. On the CPU the bits depend on A, k and
/// the options alone.
///
/// InputError for k out of range, a side too long for the method, and values whose products leave
/// the range of single precision.
int truncatedSvd(const Context &context, MatrixView<const float> a, int64_t k,
                 const SvdOptions &options, MatrixView<float> u, float *s, MatrixView<float> v);

/// Columns per part: sums over long rows are made in parts.
constexpr int64_t kColumnsOfPart = 2048;

/// Counts non-finite elements; a term for sumRows(). The sums of all rows over part 0 of the
/// columns come first, then part 1 and so on.
struct NonFiniteTerm {
  MatrixView<const float> a;

  PULSORA_HD static int64_t countOf(int64_t rows) { return rows; }
  PULSORA_HD double operator()(int64_t i, int64_t j) const {
    const float value = a(i % a.rows, i / a.rows * kColumnsOfPart + j);
    return value - value == 0.0f ? 0.0 : 1.0;
  }
};
/// Inner products of all pairs of rows of `a`; a term for sumRows(). Pair p q is number p * rows +
/// q.
struct GramTerm {
  MatrixView<const float> a;

  PULSORA_HD static int64_t countOf(int64_t rows) { return rows * rows; }
  PULSORA_HD double operator()(int64_t i, int64_t j) const {
    const int64_t pair = i % countOf(a.rows);
    const int64_t col = i / countOf(a.rows) * kColumnsOfPart + j;
    return static_cast<double>(a(pair / a.rows, col)) * static_cast<double>(a(pair % a.rows, col));
  }
};
struct PartTerm {
  const double *parts;
  int64_t count;

  PULSORA_HD double operator()(int64_t i, int64_t part) const { return parts[part * count + i]; }
};

constexpr int64_t kMostFactorLines = 64;

/// R^-1 [n, n] with R^T R = gram, like inverseCholesky() (forecast/small_matrix.h) but without
/// waiting for the GPU; n is at most kMostFactorLines. Sets *failed where inverseCholesky() returns
/// false.
void cudaInverseCholesky(const Context &context, int64_t n, const double *gram, float *inverse,
                         uint32_t *failed);
/// Changes the signs of rows of both, so that the rows `right` of v follow the sign rule of
/// truncatedSvd().
void cudaSettleSigns(const Context &context, MatrixView<float> left, MatrixView<float> right);

}  // namespace pulsora
