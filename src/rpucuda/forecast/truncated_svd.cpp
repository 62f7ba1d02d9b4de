#include "forecast/truncated_svd.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/backend.h"
#include "core/buffer.h"
#include "core/initialise.h"
#include "core/math_util.h"
#include "core/random.h"
#include "forecast/small_matrix.h"

namespace RPU {
namespace {

using Floats = std::vector<float>;

Floats download(const Context &context, MatrixView<const float> m) {
  Buffer<float> gapless(context, m.size());
  copy(context, m, rowMajor(gapless.data(), m.rows, m.cols));
  Floats values(static_cast<size_t>(m.size()));
  detail::copyToHost(context, values.data(), gapless.data(), values.size() * sizeof(float));
  return values;
}

void upload(const Context &context, const Floats &values, MatrixView<float> to) {
  Buffer<float> gapless(context, to.size());
  detail::copyFromHost(context, gapless.data(), values.data(), values.size() * sizeof(float));
  copy(context, rowMajor<const float>(gapless.data(), to.rows, to.cols), to);
}

SmallMatrix doubles(const Context &context, MatrixView<const float> m) {
  const Floats values = download(context, m);
  return {values.begin(), values.end()};
}

void uploadRounded(const Context &context, const SmallMatrix &values, MatrixView<float> to) {
  upload(context, Floats(values.begin(), values.end()), to);
}

/// Inner products of the rows of a matrix, in double precision.
SmallMatrix gramOfRows(const Context &context, MatrixView<const float> a) {
  const int64_t pairs = a.rows * a.rows;
  Buffer<double> sums(context, pairs);
  sumRows(context, pairs, a.cols, GramTerm{a}, sums.data());
  SmallMatrix gram(static_cast<size_t>(pairs));
  detail::copyToHost(context, gram.data(), sums.data(), sums.bytes());
  return gram;
}

void requireFiniteProducts(const SmallMatrix &gram) {
  RPU_CHECK(InputError,
            std::all_of(gram.begin(), gram.end(), [](double x) { return std::isfinite(x); }),
            "truncated_svd: products of elements leave the range of single precision; scale the "
            "matrix");
}

/// Makes the rows of `a`, not more than its columns, orthonormal: twice by the Cholesky factor of
/// their inner products, and where rows depend on one another, in host memory.
void orthonormalise(const Context &context, MatrixView<float> a) {
  Buffer<float> factor(context, a.rows * a.rows);
  Buffer<float> product(context, a.size());
  const auto made = rowMajor(product.data(), a.rows, a.cols);
  for (int pass = 0; pass < 2; ++pass) {
    const SmallMatrix gram = gramOfRows(context, a);
    requireFiniteProducts(gram);
    SmallMatrix inverse;
    if (!inverseCholesky(a.rows, gram, inverse)) {
      SmallMatrix rows = doubles(context, a);
      orthonormaliseRows(a.rows, a.cols, rows);
      uploadRounded(context, rows, a);
      return;
    }
    const auto r = rowMajor(factor.data(), a.rows, a.rows);
    uploadRounded(context, inverse, r);
    gemm(context, 1.0f, r.transposed(), a, 0.0f, made);
    copy(context, made, a);
  }
}

/// Singular triplets in host memory: the first k, of which `rank` are not 0.
struct Triplets {
  int64_t rank = 0;
  std::vector<double> s;
  SmallMatrix left;   // u^T [k, m]
  SmallMatrix right;  // v [k, n]
};

int64_t rankOf(const std::vector<double> &s, int64_t longest) {
  constexpr double kEps = std::numeric_limits<float>::epsilon();
  const double limit = s.empty() ? 0.0 : static_cast<double>(longest) * kEps * s[0];
  return std::count_if(s.begin(), s.end(), [&](double value) { return value > limit; });
}

/// The first k triplets of a matrix `b` of few rows, from the eigenvectors of b b^T.
Triplets byGram(const Context &context, MatrixView<const float> b, int64_t k, int64_t longest) {
  const int64_t lines = b.rows;
  SmallMatrix gram = gramOfRows(context, b);
  requireFiniteProducts(gram);
  std::vector<double> values;
  SmallMatrix vectors;
  symmetricEigen(lines, gram, values, vectors);
  Triplets made;
  for (int64_t i = 0; i < k; ++i) {
    made.s.push_back(std::sqrt(std::max(values[static_cast<size_t>(i)], 0.0)));
  }
  made.rank = rankOf(made.s, longest);
  made.left.resize(static_cast<size_t>(k * lines));
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t row = 0; row < lines; ++row) {
      made.left[static_cast<size_t>(i * lines + row)] =
          vectors[static_cast<size_t>(row * lines + i)];
    }
  }
  made.right.assign(static_cast<size_t>(k * b.cols), 0.0);
  if (made.rank == 0) return made;
  Buffer<float> scaled(context, made.rank * lines);
  Buffer<float> rows(context, made.rank * b.cols);
  SmallMatrix factor(made.left.begin(), made.left.begin() + made.rank * lines);
  for (int64_t i = 0; i < made.rank; ++i) {
    for (int64_t row = 0; row < lines; ++row) {
      factor[static_cast<size_t>(i * lines + row)] /= made.s[static_cast<size_t>(i)];
    }
  }
  const auto from = rowMajor(scaled.data(), made.rank, lines);
  const auto right = rowMajor(rows.data(), made.rank, b.cols);
  uploadRounded(context, factor, from);
  gemm(context, 1.0f, from, b, 0.0f, right);
  orthonormalise(context, right);
  const SmallMatrix found = doubles(context, right);
  std::copy(found.begin(), found.end(), made.right.begin());
  return made;
}

Triplets exactly(const Context &context, MatrixView<const float> a, int64_t k, int64_t longest) {
  SmallMatrix rows = doubles(context, a);
  SmallMatrix rotations;
  Triplets made;
  orthogonaliseRows(a.rows, a.cols, rows, rotations, made.s);
  made.s.resize(static_cast<size_t>(k));
  made.rank = rankOf(made.s, longest);
  made.left.assign(rotations.begin(), rotations.begin() + k * a.rows);
  made.right.assign(rows.begin(), rows.begin() + k * a.cols);
  for (int64_t i = 0; i < made.rank * a.cols; ++i) {
    made.right[static_cast<size_t>(i)] /= made.s[static_cast<size_t>(i / a.cols)];
  }
  return made;
}

/// The first k triplets, from a random subspace (Halko, Martinsson and Tropp 2011).
Triplets randomised(const Context &context, MatrixView<const float> a, int64_t k, int64_t longest,
                    const SvdOptions &options) {
  const int64_t size = std::min({k + options.oversampling, a.rows, a.cols});
  Buffer<float> leftRows(context, size * a.rows);
  Buffer<float> rightRows(context, size * a.cols);
  const auto left = rowMajor(leftRows.data(), size, a.rows);    // Q^T
  const auto right = rowMajor(rightRows.data(), size, a.cols);  // Omega^T, Z^T, B
  drawNormalRows(context, makeKey(options.seed, 0, 0), 0, 1.0f, right);
  gemm(context, 1.0f, right, a.transposed(), 0.0f, left);
  orthonormalise(context, left);
  for (int64_t step = 0; step < options.powerSteps; ++step) {
    gemm(context, 1.0f, left, a, 0.0f, right);
    orthonormalise(context, right);
    gemm(context, 1.0f, right, a.transposed(), 0.0f, left);
    orthonormalise(context, left);
  }
  gemm(context, 1.0f, left, a, 0.0f, right);
  Triplets made = byGram(context, right, k, longest);
  Buffer<float> factor(context, k * size);
  Buffer<float> turned(context, k * a.rows);
  const auto turn = rowMajor(factor.data(), k, size);
  const auto vectors = rowMajor(turned.data(), k, a.rows);
  uploadRounded(context, made.left, turn);
  gemm(context, 1.0f, turn, left, 0.0f, vectors);
  orthonormalise(context, vectors);
  made.left = doubles(context, vectors);
  return made;
}

/// Which rows change their sign, by the first element that is nearly the largest.
void settleSigns(int64_t k, int64_t m, int64_t n, Triplets &t) {
  constexpr double kSlack = 1.0 - 0x1p-10;
  for (int64_t i = 0; i < k; ++i) {
    double *row = &t.right[static_cast<size_t>(i * n)];
    double largest = 0.0;
    for (int64_t j = 0; j < n; ++j) largest = std::max(largest, std::abs(row[j]));
    int64_t j = 0;
    while (std::abs(row[j]) < kSlack * largest) ++j;
    if (row[j] >= 0.0) continue;
    for (int64_t c = 0; c < n; ++c) row[c] = -row[c];
    double *other = &t.left[static_cast<size_t>(i * m)];
    for (int64_t c = 0; c < m; ++c) other[c] = -other[c];
  }
}

Triplets tripletsOf(const Context &context, MatrixView<const float> a, int64_t k,
                    const SvdOptions &options) {
  const int64_t longest = std::max(a.rows, a.cols);
  if (options.method == SvdMethod::Randomised) return randomised(context, a, k, longest, options);
  const bool wide = a.rows <= a.cols;
  const auto shorter = wide ? a : a.transposed();
  Triplets made = options.method == SvdMethod::Gram ? byGram(context, shorter, k, longest)
                                                    : exactly(context, shorter, k, longest);
  if (!wide) made.left.swap(made.right);
  return made;
}

void checkArguments(MatrixView<const float> a, int64_t k, const SvdOptions &options,
                    MatrixView<float> u, MatrixView<float> v) {
  const int64_t shortest = std::min(a.rows, a.cols);
  RPU_CHECK(InputError, k >= 1 && k <= shortest, "truncated_svd: k is ", k,
            "; it must be from 1 to ", shortest, ", the shorter side of the matrix");
  RPU_CHECK(InputError, u.rows == a.rows && u.cols == k && v.rows == k && v.cols == a.cols,
            "truncated_svd: u must be [", a.rows, ", ", k, "] and v [", k, ", ", a.cols, "]");
  const bool exact = options.method == SvdMethod::Exact;
  const int64_t most = exact ? kMostExactLines : kMostGramLines;
  RPU_CHECK(InputError, options.method == SvdMethod::Randomised || shortest <= most,
            "truncated_svd: the shorter side is ", shortest, "; method '", exact ? "exact" : "gram",
            "' takes up to ", most, ": use 'randomised'");
  RPU_CHECK(InputError, options.oversampling >= 0, "truncated_svd: oversampling is ",
            options.oversampling, "; it must be at least 0");
  RPU_CHECK(InputError, options.powerSteps >= 0 && options.powerSteps <= 1000,
            "truncated_svd: power_steps is ", options.powerSteps, "; it must be from 0 to 1000");
}

bool hasNonFinite(const Context &context, MatrixView<const float> a) {
  Buffer<double> counts(context, a.rows);
  sumRows(context, a.rows, a.cols, NonFiniteTerm{a}, counts.data());
  std::vector<double> found(static_cast<size_t>(a.rows));
  detail::copyToHost(context, found.data(), counts.data(), counts.bytes());
  return std::any_of(found.begin(), found.end(), [](double count) { return count > 0.0; });
}

}  // namespace

int truncatedSvd(const Context &context, MatrixView<const float> a, int64_t k,
                 const SvdOptions &options, MatrixView<float> u, float *s, MatrixView<float> v) {
  checkArguments(a, k, options, u, v);
  const bool broken = hasNonFinite(context, a);
  Triplets t;
  if (broken) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    t.s.assign(static_cast<size_t>(k), kNan);
    t.left.assign(static_cast<size_t>(k * a.rows), kNan);
    t.right.assign(static_cast<size_t>(k * a.cols), kNan);
  } else {
    t = tripletsOf(context, a, k, options);
    std::fill(t.s.begin() + t.rank, t.s.end(), 0.0);
    completeRows(t.rank, k, a.rows, t.left);
    completeRows(t.rank, k, a.cols, t.right);
    settleSigns(k, a.rows, a.cols, t);
  }
  uploadRounded(context, t.left, u.transposed());
  uploadRounded(context, t.right, v);
  uploadRounded(context, t.s, rowMajor(s, int64_t{1}, k));
  return broken ? 1 : 0;
}

}  // namespace RPU
