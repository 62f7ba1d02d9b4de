#pragma once

#include "core/context.h"
#include "lowrank/any_matrix.h"

namespace pulsora {

/// The gradients of an adapter C = A B, from dc [m, n] at C: da [m, K] = dc b^T and
/// db [K, n] = a^T dc, added to what is there if `accumulate`. `a` is [m, K], `b` is [K, n]; each of
/// the three operands has a type of its own, such as a 16-bit copy of weights beside gradients in
/// single precision. Products and sums are in single precision, and never in tf32, whatever other
/// libraries are told; so gradients of 1e5 need no scaling. A result without data is not made.
/// Throws InputError, naming the operand, when a shape does not fit.
void adapterGradients(const Context &context, ConstAnyMatrix dc, ConstAnyMatrix a, ConstAnyMatrix b,
                      bool accumulate, MatrixView<float> da, MatrixView<float> db);

}  // namespace pulsora
