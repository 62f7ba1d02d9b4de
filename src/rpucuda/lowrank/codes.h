#pragma once

#include <cstdint>

#include "lowrank/any_matrix.h"

namespace pulsora {

/// The gates of a low-rank update: N numbers for every row of a batch. Many rows may share the same
/// numbers without copies. Row m uses the numbers at data + (m / inner) * outerStride + (m % inner)
/// * innerStride.
struct Codes {
  ElementType type = ElementType::Float32;
  const void *data = nullptr;  ///< null: all gates are 1
  int64_t cols = 0;
  int64_t rows = 0;  ///< rows of the batch that there are codes for; 0: any number
  int64_t inner = 1;
  int64_t outerStride = 0;  ///< strides are in elements
  int64_t innerStride = 0;
  int64_t colStride = 1;

  /// All gates are 1.
  static Codes ones() { return {}; }
  /// A row [N] for every row of the batch.
  static Codes perRow(ConstAnyMatrix m) {
    return {m.type, m.data, m.cols, m.rows, 1, m.rowStride, 0, m.colStride};
  }
  /// One row for the whole batch: `m` is [1, N].
  static Codes shared(ConstAnyMatrix m) {
    return {m.type, m.data, m.cols, 0, 1, 0, 0, m.colStride};
  }
  /// One row per sequence: row b of `m` [B, N] is for the `length` rows of the batch from b *
  /// length on.
  static Codes perSequence(ConstAnyMatrix m, int64_t length) {
    return {m.type, m.data, m.cols, m.rows * length, length, m.rowStride, 0, m.colStride};
  }
};

/// Codes of one type, as kernels and functors read them.
template <class T>
struct CodeReader {
  const T *data = nullptr;
  int64_t inner = 1;
  int64_t outerStride = 0;
  int64_t innerStride = 0;
  int64_t colStride = 1;

  CodeReader() = default;
  explicit CodeReader(const Codes &codes)
      : data(static_cast<const T *>(codes.data)),
        inner(codes.inner),
        outerStride(codes.outerStride),
        innerStride(codes.innerStride),
        colStride(codes.colStride) {}

  /// The first code of row m.
  PULSORA_HD const T *row(int64_t m) const {
    if (inner == 1) return data + m * outerStride;
    return data + m / inner * outerStride + m % inner * innerStride;
  }
  PULSORA_HD float at(int64_t m, int64_t n) const {
    return data ? widen(row(m)[n * colStride]) : 1.0f;
  }
};

}  // namespace pulsora
