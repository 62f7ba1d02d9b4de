#pragma once

#include "core/atomics.h"
#include "core/context.h"
#include "core/scratch.h"
#include "core/view.h"
#include "numerics/math.h"

// What a transfer could not write, as values of A: the A whose product with B is closest to it.

namespace pulsora {

/// The Cholesky factor L of a matrix B B^T [K, K], whose diagonal is raised by kRaise of its mean,
/// so that rows of B which depend on one another do no harm. One element of work.
struct GramFactor {
  const float *gram;
  int64_t rank;
  double *factor;  // [K, K]; the lower triangle is written

  static constexpr double kRaise = 1e-4;

  PULSORA_HD void operator()(int64_t) const {
    double trace = 0.0;
    // The analyzer assumes that reserved buffers have no elements.
    // NOLINTBEGIN(clang-analyzer-core.NullDereference,clang-analyzer-core.NullPointerArithm)
    for (int64_t k = 0; k < rank; ++k) trace += static_cast<double>(gram[k * rank + k]);
    const double raise = kRaise * trace / static_cast<double>(rank);
    for (int64_t i = 0; i < rank; ++i) {
      for (int64_t j = 0; j <= i; ++j) {
        double rest = static_cast<double>(gram[i * rank + j]) + (i == j ? raise : 0.0);
        for (int64_t k = 0; k < j; ++k)
          rest = pulsora::fma(-factor[i * rank + k], factor[j * rank + k], rest);
        // Without any B, there is nothing to divide by.
        if (i == j) {
          factor[i * rank + i] = pulsora::sqrt(rest > 0.0 ? rest : 1.0);
        } else {
          factor[i * rank + j] = rest / factor[j * rank + j];
        }
      }
    }
    // NOLINTEND(clang-analyzer-core.NullDereference,clang-analyzer-core.NullPointerArithm)
  }
};

/// Rows a of A from rows c of R B^T: a = scale c (L L^T)^-1, with columns times their signs.
/// Element i of work is row i.
struct RestSolver {
  const double *factor;
  MatrixView<const float> products;  // R B^T, [rows, K]
  double scale;
  const float *signs;  // [K], or null
  double *work;        // [rows, K]
  float *out;          // [rows, K]

  PULSORA_HD void operator()(int64_t i) const {
    const int64_t rank = products.cols;
    // NOLINTBEGIN(clang-analyzer-core.NullDereference,clang-analyzer-core.NullPointerArithm)
    double *a = work + i * rank;
    for (int64_t j = 0; j < rank; ++j) {
      double rest = scale * static_cast<double>(products(i, j));
      for (int64_t k = 0; k < j; ++k) rest = pulsora::fma(-factor[j * rank + k], a[k], rest);
      a[j] = rest / factor[j * rank + j];
    }
    for (int64_t j = rank - 1; j >= 0; --j) {
      double rest = a[j];
      for (int64_t k = j + 1; k < rank; ++k) rest = pulsora::fma(-factor[k * rank + j], a[k], rest);
      a[j] = rest / factor[j * rank + j];
      const auto value = static_cast<float>(a[j]);
      out[i * rank + j] = signs ? signs[j] * value : value;
    }
    // NOLINTEND(clang-analyzer-core.NullDereference,clang-analyzer-core.NullPointerArithm)
  }
};

/// Rows of A that stand for the cells whose |R| exceeds the tolerance, the largest kMost of a row
/// at most: of all a with scale^-1 a B = R at these cells, the smallest. The diagonal of their Gram
/// matrix is raised as in GramFactor. Element i of work is row i; rows without such cells stay.
struct RowHolder {
  MatrixView<const float> r;  // [rows, cols]
  MatrixView<const float> b;  // [K, cols]
  float tolerance;
  double scale;
  const float *signs;  // [K], or null
  float *a;            // [rows, K]
  uint8_t *held;       // [rows]: whether the row stands for such cells
  uint32_t *any;       // raised to 1 if one does

  static constexpr int kMost = 8;

  PULSORA_HD void operator()(int64_t i) const {
    int64_t cells[kMost];
    const int count = largest(i, cells);
    held[i] = count > 0 ? 1 : 0;
    if (count == 0) return;
    atomicRaiseTo(any, 1U);
    double gram[kMost][kMost];
    double trace = 0.0;
    for (int m = 0; m < count; ++m) {
      for (int n = 0; n <= m; ++n) {
        gram[m][n] = 0.0;
        for (int64_t k = 0; k < b.rows; ++k)
          gram[m][n] = pulsora::fma(static_cast<double>(b(k, cells[m])),
                                    static_cast<double>(b(k, cells[n])), gram[m][n]);
      }
      trace += gram[m][m];
    }
    const double raise = GramFactor::kRaise * trace / static_cast<double>(count);
    double share[kMost];
    // The analyzer does not know that count is at most kMost.
    // NOLINTBEGIN(clang-analyzer-security.ArrayBound)
    for (int m = 0; m < count; ++m) {  // the Cholesky factor, and the forward substitution
      share[m] = static_cast<double>(r(i, cells[m]));
      for (int n = 0; n <= m; ++n) {
        double rest = gram[m][n] + (m == n ? raise : 0.0);
        for (int k = 0; k < n; ++k) rest = pulsora::fma(-gram[m][k], gram[n][k], rest);
        gram[m][n] = m == n ? pulsora::sqrt(rest > 0.0 ? rest : 1.0) : rest / gram[n][n];
        if (n < m) share[m] = pulsora::fma(-gram[m][n], share[n], share[m]);
      }
      share[m] /= gram[m][m];
    }
    for (int m = count - 1; m >= 0; --m) {
      for (int n = m + 1; n < count; ++n) share[m] = pulsora::fma(-gram[n][m], share[n], share[m]);
      share[m] /= gram[m][m];
    }
    // NOLINTEND(clang-analyzer-security.ArrayBound)
    for (int64_t k = 0; k < b.rows; ++k) {
      double sum = 0.0;
      for (int m = 0; m < count; ++m)
        sum = pulsora::fma(share[m], static_cast<double>(b(k, cells[m])), sum);
      const auto value = static_cast<float>(scale * sum);
      a[i * b.rows + k] = signs ? signs[k] * value : value;
    }
  }

 private:
  /// Finds the cells of row i with the largest |R| beyond the tolerance, of equal ones the first.
  PULSORA_HD int largest(int64_t i, int64_t *cells) const {
    const int64_t half = b.rows > 1 ? b.rows / 2 : 1;
    const int most = half < kMost ? static_cast<int>(half) : kMost;
    int count = 0;
    while (count < most) {
      int64_t found = -1;
      float size = tolerance;
      for (int64_t j = 0; j < r.cols; ++j) {
        const float each = pulsora::abs(r(i, j));
        const bool taken = count > 0 && !isAfter(i, each, j, cells[count - 1]);
        if (taken || each <= size) continue;
        found = j;
        size = each;
      }
      if (found < 0) break;
      cells[count++] = found;
    }
    return count;
  }
  /// Whether cell j, of this |R|, comes after `last` in the order of largest().
  PULSORA_HD bool isAfter(int64_t i, float size, int64_t j, int64_t last) const {
    const float before = pulsora::abs(r(i, last));
    return size < before || (size == before && j > last);
  }
};

/// Finds the A [outputs, K] that stands for what a transfer left missing.
class RestKeeper {
 public:
  /// Reserves storage for fit(), which then cannot run out of memory.
  void reserve(const Context &context, int64_t outputs, int64_t rank);
  /// The A for which scale^-1 A B is closest to R [outputs, inputs] in the sum of squares, for B
  /// [K, inputs], with columns times `signs` [K] unless that is null; valid until the next call.
  /// With a tolerance above 0, rows are those of RowHolder where |R| exceeds it. The bits do not
  /// depend on the backend.
  MatrixView<const float> fit(const Context &context, MatrixView<const float> r,
                              MatrixView<const float> b, double scale, const float *signs,
                              float tolerance);
  /// The rows [outputs] that stand for cells beyond the tolerance of the latest fit() with one, and
  /// whether there are any, in memory of its backend.
  const uint8_t *held() const { return held_.data(); }
  const uint32_t *anyHeld() const { return any_.data(); }

 private:
  ScratchBuffer<float> gram_, products_, a_;
  ScratchBuffer<double> factor_, work_;
  ScratchBuffer<uint8_t> held_;
  ScratchBuffer<uint32_t> any_;  // one
};

}  // namespace pulsora
