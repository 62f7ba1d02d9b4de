#pragma once

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

/// Finds the A [outputs, K] for which scale^-1 A B is closest to R in the sum of squares.
class RestKeeper {
 public:
  /// Reserves storage for fit(), which then cannot run out of memory.
  void reserve(const Context &context, int64_t outputs, int64_t rank);
  /// The A for R [outputs, inputs] and B [K, inputs], with columns times `signs` [K] unless that is
  /// null; valid until the next call. The bits do not depend on the backend.
  MatrixView<const float> fit(const Context &context, MatrixView<const float> r,
                              MatrixView<const float> b, double scale, const float *signs);

 private:
  ScratchBuffer<float> gram_, products_, a_;
  ScratchBuffer<double> factor_, work_;
};

}  // namespace pulsora
