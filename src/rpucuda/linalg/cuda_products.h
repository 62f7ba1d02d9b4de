#pragma once

#include "core/context.h"
#include "core/view.h"
#include "linalg/im2col.h"

// Matrix products of the CUDA backend, and the patches of convolutions: cuda/linalg defines them;
// without CUDA, linalg/cuda_absent.cpp, where each throws DeviceError.

namespace pulsora::detail {

/// Creates what the products of this context need besides their matrices (a cuBLAS handle).
void cudaPrepareProducts(const Context &context);
/// C = alpha * A B + beta * C.
void cudaGemm(const Context &context, float alpha, MatrixView<const float> a,
              MatrixView<const float> b, float beta, MatrixView<float> c);
/// C += A B, product by product in the order of the inner index.
void cudaAccumulate(const Context &context, MatrixView<const float> a, MatrixView<const float> b,
                    MatrixView<float> c);
/// takePatches() on a GPU.
void cudaTakePatches(const Context &context, const PatchedImages &images, float *to);

}  // namespace pulsora::detail
