#pragma once

#include "core/context.h"
#include "core/view.h"

namespace pulsora {

/// C = alpha A B + beta C, or with `accumulate` C += A B, to the bits of linalg/gemm.h: each
/// element is summed in the order of k by one chain of fma. Any strides. With `skip`, nothing
/// happens if *skip is not 0.
void cudaSequentialGemm(const Context &context, float alpha, MatrixView<const float> a,
                        MatrixView<const float> b, float beta, MatrixView<float> c, bool accumulate,
                        const uint32_t *skip);

}  // namespace pulsora
