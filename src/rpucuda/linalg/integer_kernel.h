#pragma once

#include <cstdint>

#include "core/isa.h"
#include "linalg/integers.h"

namespace pulsora {

/// The inner loops of the product of integers, compiled once per instruction set
/// (integer_product_isa.cpp), with equal sums on each. A weight is one digit of 16 bits, or two
/// digits of 12 bits, high * 4096 + low; digits of two neighbouring inputs lie side by side, so
/// that one instruction multiplies and adds a pair.
struct IntegerKernel {
  static constexpr int kMaxRows = 8;
  static constexpr int kMaxLanes = 16;

  /// acc(r, l) += the sum over `pairs` pairs of inputs, for a fixed number of rows. `levels` has a
  /// distance of levelRow from row to row, `digits` is [pairs][digits][lanes][2], and `acc` has
  /// `lanes` columns. The sums of digits must stay below 2^31.
  using Micro = void (*)(int64_t pairs, const int16_t *levels, int64_t levelRow,
                         const int16_t *digits, double *acc);

  int lanes;    ///< outputs per vector
  int maxRows;  ///< rows of the tallest `micro`
  /// micro[d - 1][r - 1] takes weights of d digits and r rows.
  Micro micro[2][kMaxRows];

  /// Makes `count` digits of each of weights [2 * pairs, lanes], given input by input at a distance
  /// of `row`.
  void (*makeDigits)(const IntegerWeights &integers, int count, int64_t pairs, const float *weights,
                     int64_t row, int16_t *digits);

  /// out[r, l] = valueOf(acc(r, l), unit) for the first `cols` of `lanes` columns.
  void (*store)(const double *acc, int64_t rows, int64_t cols, float unit, float *out,
                int64_t outRow, int64_t outCol);
};

template <Isa>
const IntegerKernel &integerKernel();
template <>
const IntegerKernel &integerKernel<Isa::V2>();
template <>
const IntegerKernel &integerKernel<Isa::V3>();
template <>
const IntegerKernel &integerKernel<Isa::V4>();
template <>
const IntegerKernel &integerKernel<Isa::V4Popcnt>();

}  // namespace pulsora
