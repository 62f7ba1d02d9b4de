#pragma once

#include <cstdint>

#include "core/context.h"
#include "core/view.h"

// Reductions of the CUDA backend: cuda/numerics defines them; without CUDA,
// numerics/cuda_absent.cpp, where each throws DeviceError.

namespace pulsora::detail {

/// out[i] = max_j |a(i, j)|, 0 for an empty row.
void cudaRowAbsMax(const Context &context, MatrixView<const float> a, float *out);
/// Sets the context's non-finite flag if an element of a or b is not finite.
void cudaCheckFinite(const Context &context, MatrixView<const float> a,
                     MatrixView<const float> b = {});
/// Number of i with w[i] >= high[i] or w[i] <= low[i]; waits for the result.
int64_t cudaCountOutside(const Context &context, const float *w, const float *high,
                         const float *low, int64_t size);

}  // namespace pulsora::detail
