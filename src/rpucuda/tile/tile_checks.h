#pragma once

#include <cmath>
#include <string>

#include "core/backend.h"
#include "core/check.h"
#include "core/context.h"
#include "core/cuda_api.h"
#include "core/math.h"
#include "core/view.h"

// What a tile asks of its inputs, before anything changes.

namespace RPU {

inline void requireShape(MatrixView<const float> a, int64_t rows, int64_t cols, const char *name,
                         const char *what) {
  RPU_CHECK(InputError, a.cols == cols && (rows < 0 || a.rows == rows), name, " has shape [",
            a.rows, ", ", a.cols, "]; ", what, " takes [",
            rows < 0 ? std::string("batch") : std::to_string(rows), ", ", cols, "]");
}

inline void requireLearningRate(float lr) {
  RPU_CHECK(ConfigError, std::isfinite(lr), "lr is ", lr, "; it must be a finite number");
}

/// On a GPU the fault word is set, and the tile throws later.
inline void requireFinite(const Context &context, MatrixView<const float> a, const char *name) {
  if (!context.onCpu()) {
    detail::cudaCheckFinite(context, a);
    return;
  }
  for (int64_t i = 0; i < a.rows; ++i) {
    const VectorView<const float> row = a.row(i);
    uint32_t bad = 0;
    for (int64_t j = 0; j < row.size; ++j)
      bad |= (bitCast<uint32_t>(row[j]) & 0x7F800000U) == 0x7F800000U ? 1U : 0U;
    if (!bad) continue;
    int64_t j = 0;
    while (std::isfinite(row[j])) ++j;
    throw InputError(message(
        name, "[", i, ", ", j, "] is ", row[j],
        "; every value must be finite (is the training diverging? lower the learning rate)"));
  }
}

/// Both inputs of an update.
inline void requireFinite(const Context &context, MatrixView<const float> x,
                          MatrixView<const float> d) {
  if (!context.onCpu()) {
    detail::cudaCheckFinite(context, x, d);
  } else {
    requireFinite(context, x, "x");
    requireFinite(context, d, "d");
  }
}

}  // namespace RPU
