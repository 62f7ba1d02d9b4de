#pragma once

#include <cstdint>

#include "core/isa.h"
#include "linalg/integers.h"

namespace pulsora {

/// How a weight v is cut into digits of at most 16 bits: v alone, or two, v = high * 2^lowBits +
/// low.
struct IntegerDigits {
  enum class Cut { Whole, Low16, Low12 };

  IntegerWeights integers;
  Cut cut;

  int count() const { return cut == Cut::Whole ? 1 : 2; }
  int lowBits() const { return cut == Cut::Low12 ? 12 : 16; }
  /// Factor of the sums of the upper digit.
  double factor() const { return static_cast<double>(1 << lowBits()); }
};

/// A place for sums of digits. They are added to `acc` [rows, lanes], or replace it if `fresh`.
/// With `out`, they go as numbers to out[r * outRow + lane] instead.
struct DigitSums {
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
  static constexpr int kPairs = 4;  ///< pairs of inputs whose digits `add` has in registers

  /// The sums over `pairs` pairs of inputs, for a fixed number of rows and a vector of outputs.
  /// `levels` has a distance of levelRow from row to row, `digits` is [pairs][digits][lanes][2].
  using Micro = void (*)(int64_t pairs, const int16_t *levels, int64_t levelRow,
                         const int16_t *digits, const DigitSums &to);
  /// Makes the digits of weights [2 * pairs, lanes], given input by input at a distance of `row`.
  using MakeDigits = void (*)(const IntegerDigits &by, int64_t pairs, const float *weights,
                              int64_t row, int16_t *digits);
  /// Adds products to sums[i][r][digit][lanes], for i < `count` and r < `rows`. False if a weight
  /// may be beyond the integers and was not saturated: then the sums are of no use.
  using Add = bool (*)(const IntegerDigits &by, int64_t rows, int64_t count, const float *weights,
                       int64_t distance, const int16_t *levels, int32_t *sums);
  /// to[i] = sums[i] of the digits together, or += that.
  using Join = void (*)(const IntegerDigits &by, int64_t count, const int32_t *sums, bool fresh,
                        double *to);

  int lanes;    ///< outputs, or inputs, per vector
  int maxRows;  ///< rows of the tallest `micro`
  /// [d - 1][r - 1] takes weights of d digits and r rows.
  Micro micro[2][kMaxRows];
  MakeDigits makeDigits[3];  ///< by IntegerDigits::Cut
  /// By IntegerDigits::Cut, for 2 * kPairs inputs with `count` vectors of outputs each, at a
  /// distance of `distance` from input to input. `levels` are [rows][2 * kPairs].
  Add addColumns[3];
  /// By IntegerDigits::Cut, for 2 * kPairs * lanes inputs of `count` outputs, at a distance of
  /// `distance` from output to output. `levels` are [rows][2 * kPairs * lanes], interleave()d.
  Add addLines[3];
  Join joinColumns;  ///< keeps lanes apart, in to[i][lanes]
  Join joinLines;    ///< adds the lanes up
  /// Copies levels so that the two of every pair are `lanes` apart in `levels`, with zeros for
  /// inputs from `size` on, up to 2 * kPairs * lanes.
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
