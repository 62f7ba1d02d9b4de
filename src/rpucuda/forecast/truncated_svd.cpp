#include "forecast/truncated_svd.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/backend.h"
#include "core/buffer.h"
#include "forecast/small_matrix.h"
#include "linalg/initialise.h"
#include "linalg/math_util.h"
#include "numerics/random.h"

namespace pulsora {
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

/// Sums of a term over the columns of `a`, in parts: [parts, Term::countOf(rows)].
template <class Term>
Buffer<double> sumsOf(const Context &context, MatrixView<const float> a) {
  const int64_t count = Term::countOf(a.rows);
  const int64_t whole = a.cols / kColumnsOfPart;
  const int64_t rest = a.cols % kColumnsOfPart;
  Buffer<double> sums(context, count * (whole + (rest > 0)));
  sumRows(context, count * whole, kColumnsOfPart, Term{a}, sums.data());
  if (rest > 0) {
    const auto last = a.block(0, whole * kColumnsOfPart, a.rows, rest);
    sumRows(context, count, rest, Term{last}, sums.data() + count * whole);
  }
  return sums;
}

/// Inner products of the rows of a matrix, in double precision, in the backend's memory.
Buffer<double> gramOfRows(const Context &context, MatrixView<const float> a) {
  Buffer<double> parts = sumsOf<GramTerm>(context, a);
  const int64_t pairs = GramTerm::countOf(a.rows);
  if (parts.size() == pairs) return parts;
  Buffer<double> sums(context, pairs);
  sumRows(context, pairs, parts.size() / pairs, PartTerm{parts.data(), pairs}, sums.data());
  return sums;
}

/// gramOfRows() in host memory. InputError unless all products are finite.
SmallMatrix finiteGramOfRows(const Context &context, MatrixView<const float> a) {
  const Buffer<double> sums = gramOfRows(context, a);
  SmallMatrix gram(static_cast<size_t>(sums.size()));
  detail::copyToHost(context, gram.data(), sums.data(), sums.bytes());
  PULSORA_CHECK(
      InputError, std::all_of(gram.begin(), gram.end(), [](double x) { return std::isfinite(x); }),
      "truncated_svd: products of elements leave the range of single precision; scale the "
      "matrix");
  return gram;
}

/// Makes rows orthonormal by the Cholesky factor of their inner products. If it `hopes` (on a GPU),
/// it assumes that the factors exist, and does not wait.
class Orthonormaliser {
 public:
  Orthonormaliser(const Context &context, bool hopes) : context_(context), hopes_(hopes) {
    if (hopes_) failed_ = Buffer<uint32_t>::zeros(context, 1);
  }

  /// Makes the rows of `a`, at most as many as its columns, orthonormal: one pass gives the right
  /// span, two give orthonormal rows. Dependent rows are handled in host memory.
  void make(MatrixView<float> a, int passes) {
    Buffer<float> factor(context_, a.rows * a.rows);
    Buffer<float> product(context_, a.size());
    const auto made = rowMajor(product.data(), a.rows, a.cols);
    const auto r = rowMajor(factor.data(), a.rows, a.rows);
    for (int pass = 0; pass < passes; ++pass) {
      if (hopes_ && a.rows <= kMostFactorLines) {
        const Buffer<double> gram = gramOfRows(context_, a);
        cudaInverseCholesky(context_, a.rows, gram.data(), r.data, failed_.data());
      } else {
        SmallMatrix inverse;
        if (!inverseCholesky(a.rows, finiteGramOfRows(context_, a), inverse)) {
          SmallMatrix rows = doubles(context_, a);
          orthonormaliseRows(a.rows, a.cols, rows);
          uploadRounded(context_, rows, a);
          return;
        }
        uploadRounded(context_, inverse, r);
      }
      gemm(context_, 1.0f, r.transposed(), a, 0.0f, made);
      copy(context_, made, a);
    }
  }

  /// Whether a factor did not exist, so that the results are invalid. Waits for a GPU.
  bool failed() const {
    if (!hopes_) return false;
    uint32_t found = 0;
    detail::copyToHost(context_, &found, failed_.data(), sizeof found);
    return found != 0;
  }

 private:
  const Context &context_;
  bool hopes_;
  Buffer<uint32_t> failed_;
};

/// Singular values in host memory; `rank` of them are not 0.
struct Values {
  int64_t rank = 0;
  std::vector<double> s;
};

int64_t rankOf(const std::vector<double> &s, int64_t longest) {
  constexpr double kEps = std::numeric_limits<float>::epsilon();
  const double limit = s.empty() ? 0.0 : static_cast<double>(longest) * kEps * s[0];
  return std::count_if(s.begin(), s.end(), [&](double value) { return value > limit; });
}

/// The first triplets of a matrix `b` of few rows, from the eigenvectors of b b^T: `left` [k, rows]
/// is in host memory, `right` is [k, cols].
Values byGram(const Context &context, Orthonormaliser &orthonormal, MatrixView<const float> b,
              int64_t longest, SmallMatrix &left, MatrixView<float> right) {
  const int64_t lines = b.rows;
  const int64_t k = right.rows;
  SmallMatrix gram = finiteGramOfRows(context, b);
  std::vector<double> values;
  SmallMatrix vectors;
  symmetricEigen(lines, gram, values, vectors);
  Values made;
  for (int64_t i = 0; i < k; ++i) {
    made.s.push_back(std::sqrt(std::max(values[static_cast<size_t>(i)], 0.0)));
  }
  made.rank = rankOf(made.s, longest);
  left.resize(static_cast<size_t>(k * lines));
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t row = 0; row < lines; ++row) {
      left[static_cast<size_t>(i * lines + row)] = vectors[static_cast<size_t>(row * lines + i)];
    }
  }
  if (made.rank == 0) return made;
  Buffer<float> scaled(context, made.rank * lines);
  SmallMatrix factor(left.begin(), left.begin() + made.rank * lines);
  for (int64_t i = 0; i < made.rank; ++i) {
    for (int64_t row = 0; row < lines; ++row) {
      factor[static_cast<size_t>(i * lines + row)] /= made.s[static_cast<size_t>(i)];
    }
  }
  const auto from = rowMajor(scaled.data(), made.rank, lines);
  const auto there = right.block(0, 0, made.rank, right.cols);
  uploadRounded(context, factor, from);
  gemm(context, 1.0f, from, b, 0.0f, there);
  orthonormal.make(there, 2);
  return made;
}

Values exactly(const Context &context, MatrixView<const float> a, int64_t longest,
               MatrixView<float> left, MatrixView<float> right) {
  const int64_t k = left.rows;
  SmallMatrix rows = doubles(context, a);
  SmallMatrix rotations;
  Values made;
  orthogonaliseRows(a.rows, a.cols, rows, rotations, made.s);
  made.s.resize(static_cast<size_t>(k));
  made.rank = rankOf(made.s, longest);
  rotations.resize(static_cast<size_t>(k * a.rows));
  rows.resize(static_cast<size_t>(k * a.cols));
  for (int64_t i = 0; i < made.rank * a.cols; ++i) {
    rows[static_cast<size_t>(i)] /= made.s[static_cast<size_t>(i / a.cols)];
  }
  uploadRounded(context, rotations, left);
  uploadRounded(context, rows, right);
  return made;
}

/// The first triplets, from a random subspace (Halko, Martinsson and Tropp 2011).
Values randomised(const Context &context, Orthonormaliser &orthonormal, MatrixView<const float> a,
                  const SvdOptions &options, MatrixView<float> left, MatrixView<float> right) {
  const int64_t k = left.rows;
  const int64_t size = std::min({k + options.oversampling, a.rows, a.cols});
  Buffer<float> leftRows(context, size * a.rows);
  Buffer<float> rightRows(context, size * a.cols);
  const auto subspace = rowMajor(leftRows.data(), size, a.rows);  // Q^T
  const auto image = rowMajor(rightRows.data(), size, a.cols);    // Omega^T, Z^T, B
  drawNormalRows(context, makeKey(options.seed, 0, 0), 0, 1.0f, image);
  gemm(context, 1.0f, image, a.transposed(), 0.0f, subspace);
  for (int64_t step = 0; step < options.powerSteps; ++step) {
    orthonormal.make(subspace, 1);
    gemm(context, 1.0f, subspace, a, 0.0f, image);
    orthonormal.make(image, 1);
    gemm(context, 1.0f, image, a.transposed(), 0.0f, subspace);
  }
  orthonormal.make(subspace, 2);
  gemm(context, 1.0f, subspace, a, 0.0f, image);
  SmallMatrix turns;
  Values made = byGram(context, orthonormal, image, std::max(a.rows, a.cols), turns, right);
  Buffer<float> factor(context, k * size);
  const auto turn = rowMajor(factor.data(), k, size);
  uploadRounded(context, turns, turn);
  gemm(context, 1.0f, turn, subspace, 0.0f, left);
  orthonormal.make(left, 2);
  return made;
}

Values valuesOf(const Context &context, Orthonormaliser &orthonormal, MatrixView<const float> a,
                const SvdOptions &options, MatrixView<float> left, MatrixView<float> right) {
  if (options.method == SvdMethod::Randomised) {
    return randomised(context, orthonormal, a, options, left, right);
  }
  const int64_t longest = std::max(a.rows, a.cols);
  const bool wide = a.rows <= a.cols;
  const auto shorter = wide ? a : a.transposed();
  const auto few = wide ? left : right;
  const auto many = wide ? right : left;
  if (options.method == SvdMethod::Exact) return exactly(context, shorter, longest, few, many);
  SmallMatrix vectors;
  Values made = byGram(context, orthonormal, shorter, longest, vectors, many);
  uploadRounded(context, vectors, few);
  return made;
}

/// Makes rows from `rank` on an orthonormal completion of the rows before.
void complete(const Context &context, int64_t rank, MatrixView<float> a) {
  if (rank == a.rows) return;
  const auto first = doubles(context, a.block(0, 0, rank, a.cols));
  SmallMatrix rows(static_cast<size_t>(a.size()));
  std::copy(first.begin(), first.end(), rows.begin());
  completeRows(rank, a.rows, a.cols, rows);
  uploadRounded(context, rows, a);
}

void settleSigns(const Context &context, MatrixView<float> left, MatrixView<float> right) {
  if (!context.onCpu()) {
    cudaSettleSigns(context, left, right);
    return;
  }
  for (int64_t i = 0; i < right.rows; ++i) {
    const auto row = right.row(i);
    float largest = 0.0f;
    for (int64_t j = 0; j < row.size; ++j) largest = pulsora::max(largest, pulsora::abs(row[j]));
    int64_t j = 0;
    while (pulsora::abs(row[j]) < kNearlyLargest * largest) ++j;
    if (row[j] >= 0.0f) continue;
    for (int64_t c = 0; c < row.size; ++c) row[c] = -row[c];
    for (int64_t c = 0; c < left.cols; ++c) left(i, c) = -left(i, c);
  }
}

void checkArguments(MatrixView<const float> a, int64_t k, const SvdOptions &options,
                    MatrixView<float> u, MatrixView<float> v) {
  const int64_t shortest = std::min(a.rows, a.cols);
  PULSORA_CHECK(InputError, k >= 1 && k <= shortest, "truncated_svd: k is ", k,
                "; it must be from 1 to ", shortest, ", the shorter side of the matrix");
  PULSORA_CHECK(InputError, u.rows == a.rows && u.cols == k && v.rows == k && v.cols == a.cols,
                "truncated_svd: u must be [", a.rows, ", ", k, "] and v [", k, ", ", a.cols, "]");
  const bool exact = options.method == SvdMethod::Exact;
  const int64_t most = exact ? kMostExactLines : kMostGramLines;
  PULSORA_CHECK(InputError, options.method == SvdMethod::Randomised || shortest <= most,
                "truncated_svd: the shorter side is ", shortest, "; method '",
                exact ? "exact" : "gram", "' takes up to ", most, ": use 'randomised'");
  PULSORA_CHECK(InputError, options.oversampling >= 0, "truncated_svd: oversampling is ",
                options.oversampling, "; it must be at least 0");
  PULSORA_CHECK(InputError, options.powerSteps >= 0 && options.powerSteps <= 1000,
                "truncated_svd: power_steps is ", options.powerSteps,
                "; it must be from 0 to 1000");
}

bool hasNonFinite(const Context &context, MatrixView<const float> a) {
  const Buffer<double> counts = sumsOf<NonFiniteTerm>(context, a);
  std::vector<double> found(static_cast<size_t>(counts.size()));
  detail::copyToHost(context, found.data(), counts.data(), counts.bytes());
  return std::any_of(found.begin(), found.end(), [](double count) { return count > 0.0; });
}

}  // namespace

int truncatedSvd(const Context &context, MatrixView<const float> a, int64_t k,
                 const SvdOptions &options, MatrixView<float> u, float *s, MatrixView<float> v) {
  checkArguments(a, k, options, u, v);
  const auto left = u.transposed();
  const auto values = rowMajor(s, int64_t{1}, k);
  if (hasNonFinite(context, a)) {
    for (const MatrixView<float> &all : {left, v, values}) {
      upload(context, Floats(static_cast<size_t>(all.size()), std::nanf("")), all);
    }
    return 1;
  }
  const bool hopes = !context.onCpu() && context.gpuProducts == GpuProducts::Single;
  Orthonormaliser hopeful(context, hopes);
  Values found = valuesOf(context, hopeful, a, options, left, v);
  if (hopeful.failed()) {
    Orthonormaliser careful(context, false);
    found = valuesOf(context, careful, a, options, left, v);
  }
  std::fill(found.s.begin() + found.rank, found.s.end(), 0.0);
  complete(context, found.rank, left);
  complete(context, found.rank, v);
  settleSigns(context, left, v);
  uploadRounded(context, found.s, values);
  return 0;
}

}  // namespace pulsora
