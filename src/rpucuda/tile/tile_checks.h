#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/backend.h"
#include "core/check.h"
#include "core/context.h"
#include "core/cuda_api.h"
#include "core/threads.h"
#include "core/view.h"
#include "numerics/abs_max.h"
#include "numerics/cuda_numerics.h"
#include "parameters/limits.h"
#include "tile/tile.h"

// Checks of the inputs of a tile, before anything changes.

namespace pulsora {

/// ConfigError or DeviceError unless a tile can run in this context.
inline void checkContext(const Context &context) {
  requireThreads(context.cpu.threads);
  if (!context.onCpu()) requireCudaDevice(context.device);
}

/// A number of rows or columns with its name in messages; without a value, any number is right.
struct Size {
  const char *name;
  int64_t value = -1;

  std::string describe() const {
    return value < 0 ? name : std::string(name) + " = " + std::to_string(value);
  }
};
inline Size anyBatch() { return {"batch"}; }
inline Size batchOf(MatrixView<const float> inputs) { return {"batch", inputs.rows}; }

/// InputError, with the shape that `what` takes, unless the matrix `name` is [rows, cols].
inline void requireShape(MatrixView<const float> a, const Size &rows, const Size &cols,
                         const char *name, const char *what) {
  PULSORA_CHECK(InputError, a.cols == cols.value && (rows.value < 0 || a.rows == rows.value), name,
                " has shape [", a.rows, ", ", a.cols, "]; ", what, " takes [", rows.describe(),
                ", ", cols.describe(), "]");
}

/// InputError unless the part fits the `rows` rows of the input `name`; ConfigError if the
/// periphery of that direction cannot read a part of a mini-batch.
inline void requirePart(const BatchPart &part, int64_t rows, const char *name,
                        const IOParameters &io, const char *direction) {
  PULSORA_CHECK(InputError, part.first >= 0, "first is ", part.first, "; it must be >= 0");
  PULSORA_CHECK(InputError, rows <= part.size(rows) && part.first <= part.size(rows) - rows, name,
                " has ", rows, " rows, which from first = ", part.first,
                " on exceed a mini-batch of ", part.size(rows),
                " rows; give the size of the whole mini-batch as `of`");
  PULSORA_CHECK(
      ConfigError,
      part.isWhole(rows) || io.is_perfect || io.noise_management != NoiseManagement::AverageAbsMax,
      direction,
      ".noise_management is 'average_abs_max', and its scale depends on every earlier sample, "
      "so that a part of a mini-batch cannot be read; choose 'abs_max'");
}

inline void requireLearningRate(float lr) {
  PULSORA_CHECK(ConfigError, std::isfinite(lr), "lr is ", lr, "; it must be a finite number");
  PULSORA_CHECK(ConfigError, std::fabs(static_cast<double>(lr)) <= kLargestSetting, "lr is ", lr,
                "; give ", kLargestSetting, " at most, of either sign");
}

/// The place and value of the first non-finite element, as text; empty if all are finite.
inline std::string notFinite(const Context &context, MatrixView<const float> a, const char *name) {
  if (std::isfinite(absMax(context, a))) return "";
  for (int64_t i = 0;; ++i) {
    const VectorView<const float> row = a.row(i);
    for (int64_t j = 0; j < row.size; ++j) {
      if (!std::isfinite(row[j])) return message(name, "[", i, ", ", j, "] is ", row[j]);
    }
  }
}

/// InputError if a value is not finite; on a GPU the flag is set, and the tile throws later.
inline void requireFinite(const Context &context, MatrixView<const float> a, const char *name) {
  if (!context.onCpu()) {
    detail::cudaCheckFinite(context, a);
    return;
  }
  const std::string bad = notFinite(context, a, name);
  PULSORA_CHECK(
      InputError, bad.empty(), bad,
      "; every value must be finite (is the training diverging? lower the learning rate)");
}

/// Inputs of a read that may `takeInfinite` values (BatchPart). On the CPU, rows with such values
/// are zeros here; a GPU's reads deal with them.
class FiniteRows {
 public:
  FiniteRows(const Context &context, MatrixView<const float> in, bool takeInfinite) : view_(in) {
    if (!takeInfinite || !context.onCpu() || std::isfinite(absMax(context, in))) return;
    values_.assign(static_cast<size_t>(in.size()), 0.0f);
    for (int64_t i = 0; i < in.rows; ++i) {
      if (std::isfinite(absMax(context, in.block(i, 0, 1, in.cols)))) {
        for (int64_t j = 0; j < in.cols; ++j)
          values_[static_cast<size_t>(i * in.cols + j)] = in(i, j);
      } else {
        bad_.push_back(i);
      }
    }
    view_ = rowMajor<const float>(values_.data(), in.rows, in.cols);
  }
  FiniteRows(const FiniteRows &) = delete;
  FiniteRows &operator=(const FiniteRows &) = delete;

  MatrixView<const float> view() const { return view_; }
  /// Makes the results of rows with such values NaN.
  void spoil(MatrixView<float> out) const {
    for (const int64_t i : bad_)
      for (int64_t j = 0; j < out.cols; ++j) out(i, j) = kNaN;
  }

 private:
  std::vector<float> values_;
  std::vector<int64_t> bad_;
  MatrixView<const float> view_;
};

/// InputError, on the CPU, if a read of finite inputs has overflowed.
inline void requireFiniteResult(const Context &context, MatrixView<const float> out,
                                const char *name) {
  if (!context.onCpu()) return;  // results stay on the GPU
  const std::string bad = notFinite(context, out, name);
  PULSORA_CHECK(
      InputError, bad.empty(), bad,
      "; the sums of this read are beyond single precision: scale the inputs or the weights "
      "down (is the training diverging? lower the learning rate)");
}

/// InputError if a value of x or d is not finite; on a GPU the flag is set.
inline void requireFinite(const Context &context, MatrixView<const float> x,
                          MatrixView<const float> d) {
  if (!context.onCpu()) {
    detail::cudaCheckFinite(context, x, d);
  } else {
    requireFinite(context, x, "x");
    requireFinite(context, d, "d");
  }
}

/// InputError, on the CPU, if x or d is not finite, or if the changes lr d^T x of the weights might
/// overflow. On a GPU like requireFinite().
inline void requireStep(const Context &context, MatrixView<const float> x,
                        MatrixView<const float> d, float lr) {
  if (!context.onCpu()) {
    requireFinite(context, x, d);
    return;
  }
  // Not finite if an element is not, so that one pass over x and d checks both.
  const double step = sumOfAbsMaxProducts(context, x, d) * std::fabs(static_cast<double>(lr));
  const bool fits = step <= static_cast<double>(std::numeric_limits<float>::max());
  if (!fits) requireFinite(context, x, d);
  PULSORA_CHECK(InputError, fits, "lr is ", lr,
                " and x and d are so large that weights would change by up to ", step,
                ", which is beyond single precision; scale them down");
}

}  // namespace pulsora
