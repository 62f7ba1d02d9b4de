#pragma once

#include "core/context.h"
#include "lowrank/any_matrix.h"
#include "lowrank/codes.h"

// The gated low-rank update of a batch and its gradients, on both backends: public API.
//
// All operands have one type, float, Half or BFloat16, and any strides. Sums are in single
// precision (within K 2^-24 of the sum of the magnitudes of K terms), the products with V are never
// rounded to 16 bits, and a result is rounded once. On the CPU, results have the same bits for any
// number of threads and on every machine; on a GPU, the same call gives the same bits. On a GPU all
// work is enqueued in the context's stream, and no function waits. Nothing is changed when a
// function throws.

namespace pulsora {

/// The operands of y = scale ((x v) .* codes) u^T.
struct GatedLowRank {
  ConstAnyMatrix x;  ///< [M, K1], a row for each sample
  ConstAnyMatrix v;  ///< [K1, N]
  Codes codes;       ///< [M, N]; by default all 1
  ConstAnyMatrix u;  ///< [K2, N]; for memory laid out as [N, K2], the transposed view
  float scale = 1.0f;
};

/// y = base + scale ((x v) .* codes) u^T; a `base` without data is 0. base and y are [M, K2]; both
/// may be the same matrix, and y shares no memory with other operands. Throws InputError, naming
/// the operand, when a shape or a type does not fit.
void gatedLowRank(const Context &context, const GatedLowRank &update, ConstAnyMatrix base,
                  AnyMatrix y);

/// y = x weight^T + bias + scale ((x v) .* codes) u^T: a layer with a low-rank adapter in one
/// operation, rounded once. `weight` is [K2, K1]; `bias` is [1, K2], or without data 0. y [M, K2]
/// shares no memory with the operands. Throws InputError, naming the operand, when a shape or a
/// type does not fit.
void gatedLowRankLinear(const Context &context, const GatedLowRank &update, ConstAnyMatrix weight,
                        ConstAnyMatrix bias, AnyMatrix y);

/// Whether a fused kernel computes gatedLowRankLinear() faster than a library's product of x and
/// weight [K1, K2] followed by gatedLowRank() with that product as `base`. False on the CPU.
bool gatedLowRankLinearPays(const Context &context, const GatedLowRank &update,
                            ConstAnyMatrix weight, ConstAnyMatrix bias, AnyMatrix y);

/// The gradients to compute; a gradient without data is not computed.
struct GatedGradients {
  AnyMatrix x;              ///< [M, K1]: scale ((dy u) .* codes) v^T
  AnyMatrix v;              ///< [K1, N]: scale x^T ((dy u) .* codes)
  MatrixView<float> codes;  ///< [M, N]: scale (x v) .* (dy u), also for shared codes
  AnyMatrix u;              ///< [K2, N]: scale dy^T ((x v) .* codes)
  /// Working memory, for callers that manage it (see gatedLowRankScratch); not used if too small.
  VectorView<float> scratch;
};

/// Number of floats that gatedLowRankBackward() can use in `gradients.scratch`; without them it
/// allocates memory. 0 on the CPU.
int64_t gatedLowRankScratch(const Context &context, const GatedLowRank &update, ConstAnyMatrix dy,
                            const GatedGradients &gradients);

/// All gradients of a function whose gradient at y is `dy` [M, K2]. Needs only the operands of the
/// forward product. Throws like gatedLowRank().
void gatedLowRankBackward(const Context &context, const GatedLowRank &update, ConstAnyMatrix dy,
                          const GatedGradients &gradients);

}  // namespace pulsora
