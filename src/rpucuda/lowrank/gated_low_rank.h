#pragma once

#include "core/context.h"
#include "lowrank/any_matrix.h"
#include "lowrank/codes.h"

// The gated low-rank update of a batch and its gradients, on both backends: public API.
//
// All operands have one type, float, Half or BFloat16, and any strides. Sums are in single precision
// (within K 2^-24 of the sum of the magnitudes of K terms), the products with V are never rounded to
// 16 bits, and a result is rounded once. On the CPU, results have the same bits for any number of
// threads and on every machine; on a GPU, the same call gives the same bits. On a GPU everything is
// enqueued in the context's stream and nothing waits. Nothing is changed when a function throws.

namespace pulsora {

/// The operands of y = scale ((x v) .* codes) u^T.
struct GatedLowRank {
  ConstAnyMatrix x;  ///< [M, K1], a row for each sample
  ConstAnyMatrix v;  ///< [K1, N]
  Codes codes;       ///< [M, N]; by default all 1
  ConstAnyMatrix u;  ///< [K2, N]; of one that lies in memory as [N, K2], the transposed view
  float scale = 1.0f;
};

/// y = base + scale ((x v) .* codes) u^T, or without `base` where that has no data. base and y are
/// [M, K2]; both may be the same matrix, and y shares no element with anything else. Throws
/// InputError, naming the operand, when a shape or a type does not fit.
void gatedLowRank(const Context &context, const GatedLowRank &update, ConstAnyMatrix base,
                  AnyMatrix y);

/// y = x weight^T + bias + scale ((x v) .* codes) u^T: a layer with a low-rank adapter in one operation,
/// rounded once. `weight` is [K2, K1]; `bias` is [1, K2], or without data 0. y [M, K2] shares no element
/// with anything else. Throws InputError, naming the operand, when a shape or a type does not fit.
void gatedLowRankLinear(const Context &context, const GatedLowRank &update, ConstAnyMatrix weight,
                        ConstAnyMatrix bias, AnyMatrix y);

/// Whether a kernel of its own makes gatedLowRankLinear(), and sooner than a library's product of x and
/// weight [K1, K2] whose result is given to gatedLowRank() as `base`. Never on the CPU.
bool gatedLowRankLinearPays(const Context &context, const GatedLowRank &update,
                            ConstAnyMatrix weight, ConstAnyMatrix bias, AnyMatrix y);

/// Where the gradients go; those without data are not made.
struct GatedGradients {
  AnyMatrix x;              ///< [M, K1]: scale ((dy u) .* codes) v^T
  AnyMatrix v;              ///< [K1, N]: scale x^T ((dy u) .* codes)
  MatrixView<float> codes;  ///< [M, N]: scale (x v) .* (dy u), also of codes that rows share
  AnyMatrix u;              ///< [K2, N]: scale dy^T ((x v) .* codes)
  /// Memory to work in, for callers that manage it (see gatedLowRankScratch); too little is not used.
  VectorView<float> scratch;
};

/// How many floats gatedLowRankBackward() can use in `gradients.scratch`; else it allocates what it needs.
/// 0 on the CPU.
int64_t gatedLowRankScratch(const Context &context, const GatedLowRank &update, ConstAnyMatrix dy,
                            const GatedGradients &gradients);

/// All gradients of a function whose gradient at y is `dy` [M, K2]. Nothing of the forward product is
/// needed but its operands. Throws as gatedLowRank() does.
void gatedLowRankBackward(const Context &context, const GatedLowRank &update, ConstAnyMatrix dy,
                          const GatedGradients &gradients);

}  // namespace pulsora
