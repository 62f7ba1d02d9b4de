#pragma once

#include "core/atomics.h"
#include "core/context.h"
#include "core/group.h"
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

/// The cell of a row with the largest |R| so far; -1: none.
struct LargestMissing {
  int64_t cell;
  float size;

  /// Takes the other one if that is larger, or of equal ones the first of the row.
  PULSORA_HD void join(const LargestMissing &o) {
    const bool larger = o.size > size || (o.size == size && (cell < 0 || o.cell < cell));
    if (o.cell >= 0 && larger) *this = o;
  }
};

/// The lanes that treat a row of a RowHolder together: the CPU's one. A GPU's warp is in
/// cuda/lrtt/hold_rows.cu.
struct OneLane {
  static constexpr int64_t kCount = 1;
  PULSORA_HD int64_t index() const { return 0; }
  /// Waits until all lanes see what others have written.
  PULSORA_HD void wait() const {}
  /// The largest of all lanes.
  PULSORA_HD LargestMissing largest(const LargestMissing &mine) const { return mine; }
};

/// Memory of a RowHolder that its lanes share.
struct HeldCells {
  static constexpr int kMost = 8;

  int64_t cells[kMost];
  double gram[kMost][kMost];
  double share[kMost];
};

/// Rows of A that stand for the cells whose |R| exceeds the tolerance, the largest kMost of a row
/// at most: of all a with scale^-1 a B = R at these cells, the smallest. The diagonal of their Gram
/// matrix is raised as in GramFactor. Rows without such cells stay.
struct RowHolder {
  MatrixView<const float> r;  // [rows, cols]
  MatrixView<const float> b;  // [K, cols]
  float tolerance;
  double scale;
  const float *signs;  // [K], or null
  float *a;            // [rows, K]
  uint8_t *held;       // [rows]: whether the row stands for such cells
  uint32_t *any;       // raised to 1 if one does

  PULSORA_HD void operator()(int64_t i) const {
    HeldCells memory;
    hold(OneLane{}, i, memory);
  }

  /// Treats row i. Each element of a sum, or whole sum, is the work of one lane.
  PULSORA_CALLS_GROUP
  template <class Lanes>
  PULSORA_HD void hold(const Lanes &lanes, int64_t i, HeldCells &memory) const {
    const int count = find(lanes, i, memory.cells);
    if (lanes.index() == 0) {
      held[i] = count > 0 ? 1 : 0;
      if (count > 0) atomicRaiseTo(any, 1U);
    }
    if (count == 0) return;
    lanes.wait();
    for (int64_t e = lanes.index(); e < count * count; e += Lanes::kCount) {
      const int64_t m = e / count;
      const int64_t n = e - m * count;
      if (n <= m) memory.gram[m][n] = product(memory.cells[m], memory.cells[n]);
    }
    lanes.wait();
    if (lanes.index() == 0) solve(i, count, memory);
    lanes.wait();
    for (int64_t k = lanes.index(); k < b.rows; k += Lanes::kCount) {
      double sum = 0.0;
      for (int m = 0; m < count; ++m)
        sum = pulsora::fma(memory.share[m], static_cast<double>(b(k, memory.cells[m])), sum);
      const auto value = static_cast<float>(scale * sum);
      a[i * b.rows + k] = signs ? signs[k] * value : value;
    }
  }

 private:
  PULSORA_HD double product(int64_t cell, int64_t other) const {
    double sum = 0.0;
    for (int64_t k = 0; k < b.rows; ++k)
      sum = pulsora::fma(static_cast<double>(b(k, cell)), static_cast<double>(b(k, other)), sum);
    return sum;
  }
  /// The shares of the cells: the Cholesky factor in the place of the Gram matrix, and the two
  /// substitutions.
  PULSORA_HD void solve(int64_t i, int count, HeldCells &memory) const {
    auto &[cells, gram, share] = memory;
    double trace = 0.0;
    for (int m = 0; m < count; ++m) trace += gram[m][m];
    const double raise = GramFactor::kRaise * trace / static_cast<double>(count);
    // The analyzer does not know that count is at most kMost.
    // NOLINTBEGIN(clang-analyzer-security.ArrayBound)
    for (int m = 0; m < count; ++m) {
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
  }
  /// Finds the cells of row i with the largest |R| beyond the tolerance, of equal ones the first.
  PULSORA_CALLS_GROUP
  template <class Lanes>
  PULSORA_HD int find(const Lanes &lanes, int64_t i, int64_t *cells) const {
    const int64_t half = b.rows > 1 ? b.rows / 2 : 1;
    const int most = half < HeldCells::kMost ? static_cast<int>(half) : HeldCells::kMost;
    LargestMissing last{-1, 0.0f};
    for (int count = 0; count < most; ++count) {
      LargestMissing mine{-1, tolerance};
      for (int64_t j = lanes.index(); j < r.cols; j += Lanes::kCount) {
        const float size = pulsora::abs(r(i, j));
        if (size <= mine.size) continue;
        const bool isNew =
            last.cell < 0 || size < last.size || (size == last.size && j > last.cell);
        if (isNew) mine = {j, size};
      }
      last = lanes.largest(mine);
      if (last.cell < 0) return count;
      if (lanes.index() == 0) cells[count] = last.cell;
    }
    return most;
  }
};

/// Calls a RowHolder for every row of R on a GPU (cuda/lrtt/hold_rows.cu).
void cudaHoldRows(const Context &context, const RowHolder &holder);

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
