#pragma once

#include <cstdint>

#include "core/isa.h"
#include "linalg/integers.h"

namespace pulsora {

/// How a weight v is cut into digits of at most 16 bits: v alone, or two, v = high * 2^lowBits +
/// low.
struct IntegerDigits {
  IntegerWeights integers;
  int count;    ///< 1 or 2
  int lowBits;  ///< 12 or 16

  /// Factor of the sums of the upper digit.
  double factor() const { return static_cast<double>(1 << lowBits); }
};

/// A place for sums of digits. They are added to `acc` [rows, lanes], or replace it if `fresh`.
/// With `out`, they go as numbers to out[r * outRow + lane] instead.
struct IntegerSums {
  double factor;  ///< IntegerDigits::factor()
  double *acc;
  bool fresh;
  float *out;
  int64_t outRow;
  float unit;
};

/// The inner loops of the product of integers, compiled once per instruction set
/// (integer_product_isa.cpp), with equal sums on each. Digits of two inputs lie side by side, so
/// that one instruction multiplies and adds a pair. The sums of digits must stay below 2^31.
struct IntegerKernel {
  static constexpr int kMaxRows = 8;
  static constexpr int kMaxLanes = 16;

  /// The sums over `pairs` pairs of inputs, for a fixed number of rows and a vector of outputs.
  /// `levels` has a distance of levelRow from row to row, `digits` is [pairs][digits][lanes][2].
  using Micro = void (*)(int64_t pairs, const int16_t *levels, int64_t levelRow,
                         const int16_t *digits, const IntegerSums &to);
  /// Sums as of `micro` over `size` inputs, with weights [size, lanes] given input by input at a
  /// distance of `row`. For an odd `size`, there is one more level.
  using Columns = void (*)(const IntegerDigits &by, int64_t size, const float *weights, int64_t row,
                           const int16_t *levels, int64_t levelRow, const IntegerSums &to);
  /// acc[r] += the sum for row r and one output, of which the weights [size] lie side by side; in
  /// place of acc[r] if `fresh`. `levels` are interleave()d.
  using Dots = void (*)(const IntegerDigits &by, int64_t size, const float *weights,
                        const int16_t *levels, int64_t levelRow, double factor, bool fresh,
                        double *acc);

  int lanes;    ///< outputs per vector
  int maxRows;  ///< rows of the tallest `micro`
  int fewRows;  ///< rows of the tallest `columns` and `dots`
  /// [d - 1][r - 1] takes weights of d digits and r rows.
  Micro micro[2][kMaxRows];
  Columns columns[2][kMaxRows];
  Dots dots[2][kMaxRows];

  /// Makes the digits of weights [2 * pairs, lanes], given input by input at a distance of `row`.
  void (*makeDigits)(const IntegerDigits &by, int64_t pairs, const float *weights, int64_t row,
                     int16_t *digits);
  /// Copies levels so that the two of every pair are `lanes` apart in `levels`, with zeros up to a
  /// whole number of 2 * lanes.
  void (*interleave)(const int16_t *levels, int64_t size, int16_t *to);

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
