#pragma once

#include "core/isa.h"
#include "core/view.h"
#include "linalg/integers.h"

namespace pulsora {

/// out = valueOf(sum over k of n_rk v_ok, unit): exact sums of products of integers, on the CPU.
/// `levels` [m, K] are the inputs n, rows without gaps within them, of magnitude `largestLevel` at
/// most; `weights` [N, K], in any layout, become v by integerOf(); `out` is [m, N]. The memory of
/// `levels` goes on for one element after the last. Requires areExact(). Neither threads nor
/// instruction set change a bit.
void integerProduct(MatrixView<const int16_t> levels, int32_t largestLevel,
                    MatrixView<const float> weights, const IntegerWeights &integers, float unit,
                    MatrixView<float> out, int threads, Isa isa);

}  // namespace pulsora
