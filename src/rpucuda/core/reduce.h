#pragma once

#include "core/context.h"
#include "core/view.h"

namespace RPU {

/// out[i] = max_j |a(i, j)|, 0 for an empty row. `out` holds a.rows floats on the context's
/// backend.
void rowAbsMax(const Context &context, MatrixView<const float> a, float *out);

}  // namespace RPU
