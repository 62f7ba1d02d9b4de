#pragma once

#include "core/context.h"
#include "lowrank/any_matrix.h"

namespace pulsora {

/// The gradients of an adapter C = A B, from dc [m, n] at C: da [m, K] = dc b^T and db [K, n] = a^T
/// dc, added to the present values if `accumulate`. `a` is [m, K], `b` is [K, n]; the types of the
/// three operands may differ, such as a 16-bit copy of weights beside gradients in single
/// precision. Products and sums are in single precision, and never in tf32, whatever other
/// libraries are set to; so gradients of 1e5 need no scaling. A result without data is not
/// computed. Throws InputError, naming the operand, when a shape does not fit.
void adapterGradients(const Context &context, ConstAnyMatrix dc, ConstAnyMatrix a, ConstAnyMatrix b,
                      bool accumulate, MatrixView<float> da, MatrixView<float> db);

}  // namespace pulsora
