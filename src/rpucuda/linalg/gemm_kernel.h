#pragma once

#include <cstdint>

#include "core/isa.h"

namespace pulsora {

/// The inner loops of the reproducible matrix product, compiled once per instruction set
/// (gemm_isa.cpp), with equal bits on each. All strides count floats.
struct GemmKernel {
  static constexpr int kMaxRows = 14;
  static constexpr int kMaxVectors = 2;
  static constexpr int kMaxLanes = 16;

  /// acc(r, j) = fma(a(r, k), b(k, j), acc(r, j)) for k = 0 .. depth-1 in this order, for a fixed
  /// number of rows and of columns. acc starts at 0 when `fresh`, else at its old values. b and acc
  /// have column stride 1, a has any.
  using Micro = void (*)(int64_t depth, const float *a, int64_t aRow, int64_t aCol, const float *b,
                         int64_t bRow, bool fresh, float *acc, int64_t accRow);

  int lanes;    ///< columns per vector
  int maxRows;  ///< rows of the tallest `micro`
  /// micro[v - 1][r - 1] takes r rows and v * lanes columns.
  Micro micro[kMaxVectors][kMaxRows];

  /// dst[i * dstRow + j] = src[i * srcRow + j * srcCol]; fast when either source stride is 1.
  void (*copy)(float *dst, int64_t dstRow, const float *src, int64_t srcRow, int64_t srcCol,
               int64_t rows, int64_t cols);

  /// c(i, j) = alpha * acc(i, j) when beta is 0 (c is not read), else fma(alpha, acc(i, j), beta *
  /// c(i, j)).
  void (*store)(const float *acc, int64_t accRow, int64_t rows, int64_t cols, float alpha,
                float beta, float *c, int64_t cRow, int64_t cCol);
};

template <Isa>
const GemmKernel &gemmKernel();
template <>
const GemmKernel &gemmKernel<Isa::V2>();
template <>
const GemmKernel &gemmKernel<Isa::V3>();
template <>
const GemmKernel &gemmKernel<Isa::V4>();
template <>
const GemmKernel &gemmKernel<Isa::V4Popcnt>();

}  // namespace pulsora
