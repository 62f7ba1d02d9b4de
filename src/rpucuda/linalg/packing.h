#pragma once

#include "core/context.h"
#include "core/view.h"

namespace pulsora {

// Copies a range of columns or rows of a matrix into a larger one and back: a factor of few
// components into an array, one tile into a grid, samples into a mini-batch. Exact copies between
// any layouts, on either backend; nothing outside the range is changed. Each function throws
// InputError, before it changes anything, when the range does not lie within the larger matrix.

/// to(:, offset + k) = from(:, k): from is [m, K], to is [m, n], 0 <= offset <= n - K.
void packColumns(const Context &context, MatrixView<const float> from, MatrixView<float> to,
                 int64_t offset);
/// to(:, k) = from(:, offset + k): from is [m, n], to is [m, K], 0 <= offset <= n - K.
void unpackColumns(const Context &context, MatrixView<const float> from, MatrixView<float> to,
                   int64_t offset);

/// to(offset + k, :) = from(k, :): from is [K, n], to is [m, n], 0 <= offset <= m - K.
void packRows(const Context &context, MatrixView<const float> from, MatrixView<float> to,
              int64_t offset);
/// to(k, :) = from(offset + k, :): from is [m, n], to is [K, n], 0 <= offset <= m - K.
void unpackRows(const Context &context, MatrixView<const float> from, MatrixView<float> to,
                int64_t offset);

}  // namespace pulsora
