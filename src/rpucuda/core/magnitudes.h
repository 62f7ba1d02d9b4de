#pragma once

#include "core/context.h"
#include "core/isa.h"
#include "core/view.h"

namespace RPU {

// Largest magnitudes on the CPU, compiled once per instruction set.

/// The largest magnitude of a matrix, 0 for an empty one; not finite if an element is not.
template <Isa isa>
float largestMagnitude(MatrixView<const float> a);

/// The sum over rows i of max|x(i, .)| max|d(i, .)|, of matrices with as many rows; not finite if an
/// element is not.
template <Isa isa>
double sumOfLargestProducts(MatrixView<const float> x, MatrixView<const float> d);

/// out[i] = max_j |a(i, j)| for the rows [begin, end), 0 for empty ones; what is no number does not
/// count.
template <Isa isa>
void largestOfRows(MatrixView<const float> a, int64_t begin, int64_t end, float *out);

/// largestMagnitude() and sumOfLargestProducts() by the instruction set of a context of the CPU.
float largestMagnitude(const Context &context, MatrixView<const float> a);
double sumOfLargestProducts(const Context &context, MatrixView<const float> x,
                            MatrixView<const float> d);

}  // namespace RPU
