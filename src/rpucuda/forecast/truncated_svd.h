#pragma once

#include <cstdint>

#include "core/context.h"
#include "core/view.h"

namespace RPU {

enum class SvdMethod {
  Randomised,  ///< a random subspace, improved by power steps: for few triplets of large matrices
  Gram,        ///< eigenvectors of A A^T or A^T A in double precision; for a short side of up to 64
  Exact,       ///< rotations in double precision, in host memory; for a short side of up to 1024
};

struct SvdOptions {
  SvdMethod method = SvdMethod::Randomised;
  int64_t oversampling = 16;  ///< Randomised: columns of the subspace beyond k
  int64_t powerSteps = 4;     ///< Randomised: how often A^T and A are applied to it
  uint64_t seed = 0;          ///< Randomised: of the subspace
};

constexpr int64_t kMostGramLines = 64;
constexpr int64_t kMostExactLines = 1024;

/// A [m, n] ~ u diag(s) v with u [m, k] and v [k, n] orthonormal and s [k] falling; all of them where
/// the context computes. Returns 0, or 1 if A has an element that is not finite: then all results
/// are NaN.
///
/// The numerical rank r counts singular values above max(m, n) 2^-23 s_0. Beyond it s is exactly 0,
/// and u and v are completed from unit vectors. Of each row of v, the first element whose magnitude
/// is at least (1 - 2^-10) times the largest is positive. On the CPU the bits depend on A, k and the
/// options alone.
///
/// InputError for k out of range, a side too long for the method, and values whose products leave
/// the range of single precision.
int truncatedSvd(const Context &context, MatrixView<const float> a, int64_t k,
                 const SvdOptions &options, MatrixView<float> u, float *s, MatrixView<float> v);

/// Terms of sums, for sumRows().
struct NonFiniteTerm {
  MatrixView<const float> a;

  RPU_HD double operator()(int64_t i, int64_t j) const {
    const float value = a(i, j);
    return value - value == 0.0f ? 0.0 : 1.0;
  }
};
/// Of the inner products of all pairs of rows of `a`: pair p q is number p * rows + q.
struct GramTerm {
  MatrixView<const float> a;

  RPU_HD double operator()(int64_t pair, int64_t j) const {
    return static_cast<double>(a(pair / a.rows, j)) * static_cast<double>(a(pair % a.rows, j));
  }
};

}  // namespace RPU
