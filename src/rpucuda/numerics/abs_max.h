#pragma once

#include "core/context.h"
#include "core/isa.h"
#include "core/view.h"

namespace pulsora {

// Largest magnitudes on the CPU, compiled once per instruction set.

/// The largest magnitude of a matrix, 0 for an empty one; not finite if an element is not.
template <Isa isa>
float absMax(MatrixView<const float> a);

/// The sum over rows i of max|x(i, .)| max|d(i, .)|, of matrices with equally many rows; not finite
/// if an element is not.
template <Isa isa>
double sumOfAbsMaxProducts(MatrixView<const float> x, MatrixView<const float> d);

/// out[i] = max_j |a(i, j)| for the rows [begin, end), 0 for empty ones; NaN elements do not count.
template <Isa isa>
void rowAbsMax(MatrixView<const float> a, int64_t begin, int64_t end, float *out);

/// out[i] = max_j |a(i, j)|, 0 for an empty row. `out` holds a.rows floats on the context's
/// backend.
void rowAbsMax(const Context &context, MatrixView<const float> a, float *out);

/// absMax() and sumOfAbsMaxProducts() with the instruction set of a CPU context.
float absMax(const Context &context, MatrixView<const float> a);
double sumOfAbsMaxProducts(const Context &context, MatrixView<const float> x,
                           MatrixView<const float> d);

}  // namespace pulsora
