#pragma once

#include "core/context.h"
#include "lowrank/any_matrix.h"

namespace pulsora {

/// A result of adapterGradients(). Without data, the result is not computed.
struct AdapterGradient {
  MatrixView<float> to;
  /// Whether the result is added to the present values.
  bool accumulates = false;
};

/// The gradients of an adapter C = A B, from dc [m, n] at C: da [m, K] = dc b^T and db [K, n] = a^T
/// dc. `a` is [m, K], `b` is [K, n]; the types of the three operands may differ, such as a 16-bit
/// copy of weights beside gradients in single precision. Products and sums are in single precision,
/// and never in tf32, whatever other libraries are set to; so gradients of 1e5 need no scaling. The
/// values of the operand of a result without data are not read. Throws InputError, naming the
/// operand, when a shape does not fit.
void adapterGradients(const Context &context, ConstAnyMatrix dc, ConstAnyMatrix a, ConstAnyMatrix b,
                      const AdapterGradient &da, const AdapterGradient &db);

}  // namespace pulsora
