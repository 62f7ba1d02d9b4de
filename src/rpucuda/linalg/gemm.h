#pragma once

#include "core/isa.h"
#include "core/view.h"

namespace pulsora {

/// C = alpha * A B + beta * C with bits that depend on the operands alone:
///   acc_ij = 0; for k = 0, 1, ..., K-1: acc_ij = fma(a_ik, b_kj, acc_ij)
///   c_ij = alpha * acc_ij                      if beta is 0 (C is not read),
///   c_ij = fma(alpha, acc_ij, beta * c_ij)     otherwise,
/// each operation rounded to float32. Blocking, `threads`, `isa`, strides, the other rows and
/// columns and the compiler do not change the bits: a row of C computed alone equals that row in a
/// batch. (Only the payload of a NaN is unspecified.) A is [m, K], B is [K, n], C is [m, n], with
/// any strides; K = 0 gives acc = 0. C must share no element with A or B. Throws InputError
/// when shapes do not fit, ConfigError when `threads` < 1 or this machine cannot execute `isa`.
void reproducibleGemm(float alpha, MatrixView<const float> a, MatrixView<const float> b, float beta,
                      MatrixView<float> c, int threads, Isa isa);

/// C += A B one product at a time: for k = 0, 1, ..., K-1: c_ij = fma(a_ik, b_kj, c_ij), so that
/// splitting K over several calls leaves the bits unchanged. Otherwise like reproducibleGemm.
void reproducibleAccumulate(MatrixView<const float> a, MatrixView<const float> b,
                            MatrixView<float> c, int threads, Isa isa);

}  // namespace pulsora
