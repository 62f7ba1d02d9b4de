#pragma once

#include <cstdint>

#include "core/buffer.h"
#include "core/context.h"
#include "core/random.h"
#include "core/view.h"

namespace RPU {

/// Random rows with out out^T = rowNorm^2 I: the rows of drawNormalRows (core/initialise.h), made
/// orthogonal by Gram-Schmidt in double precision on the host, in a fixed order of operations.
/// Needs rows <= cols; `out` is gapless.
void drawOrthogonalRows(const Context &context, RandomKey key, uint64_t number, float rowNorm,
                        MatrixView<float> out);

/// out = vectors, each row scaled to norm `rowNorm`; a row of zeros stays. `out` is gapless.
void scaleRows(const Context &context, MatrixView<const float> vectors, float rowNorm,
               MatrixView<float> out);

}  // namespace RPU
