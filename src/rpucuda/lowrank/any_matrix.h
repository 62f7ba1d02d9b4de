#pragma once

#include <cstdint>
#include <type_traits>

#include "core/check.h"
#include "core/view.h"
#include "lowrank/element.h"

namespace pulsora {

/// A MatrixView whose element type is known at run time only. Any MatrixView of float, Half or
/// BFloat16 converts to it. A matrix without data means "not given".
template <class Void>
struct TypedMatrix {
  static_assert(std::is_void_v<Void>, "AnyMatrix and ConstAnyMatrix are the two kinds");

  ElementType type = ElementType::Float32;
  Void *data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t rowStride = 0;  ///< strides are in elements
  int64_t colStride = 1;

  TypedMatrix() = default;
  TypedMatrix(ElementType type_, Void *data_, int64_t rows_, int64_t cols_, int64_t rowStride_,
              int64_t colStride_)
      : type(type_),
        data(data_),
        rows(rows_),
        cols(cols_),
        rowStride(rowStride_),
        colStride(colStride_) {}
  template <class T, class = std::enable_if_t<std::is_convertible_v<T *, Void *>>>
  TypedMatrix(const MatrixView<T> &view)
      : TypedMatrix(ElementTypeOf<std::remove_const_t<T>>::kType, view.data, view.rows, view.cols,
                    view.rowStride, view.colStride) {}
  template <class Other, class = std::enable_if_t<std::is_convertible_v<Other *, Void *>>>
  TypedMatrix(const TypedMatrix<Other> &other)
      : TypedMatrix(other.type, other.data, other.rows, other.cols, other.rowStride,
                    other.colStride) {}

  int64_t size() const { return rows * cols; }
  TypedMatrix transposed() const { return {type, data, cols, rows, colStride, rowStride}; }
  /// Rows [begin, begin + count).
  TypedMatrix rowRange(int64_t begin, int64_t count) const {
    using Bytes = std::conditional_t<std::is_const_v<Void>, const char, char>;
    auto *first = static_cast<Bytes *>(data);
    if (first) first += begin * rowStride * elementBytes(type);
    return {type, first, count, cols, rowStride, colStride};
  }
  /// The matrix as a MatrixView of T, which must be its element type.
  template <class T>
  MatrixView<std::conditional_t<std::is_const_v<Void>, const T, T>> as() const {
    using Element = std::conditional_t<std::is_const_v<Void>, const T, T>;
    PULSORA_ASSERT(type == ElementTypeOf<T>::kType);
    return {static_cast<Element *>(data), rows, cols, rowStride, colStride};
  }
};

using AnyMatrix = TypedMatrix<void>;
using ConstAnyMatrix = TypedMatrix<const void>;

/// Throws InputError, naming `function` and `name`, unless the matrix is [rows, cols].
inline void requireSize(const char *function, const char *name, ConstAnyMatrix matrix, int64_t rows,
                        int64_t cols) {
  PULSORA_CHECK(InputError, matrix.rows == rows && matrix.cols == cols, function, ": ", name,
                " is [", matrix.rows, ", ", matrix.cols, "]; with the other operands it must be [",
                rows, ", ", cols, "]");
}

/// Throws InputError, naming `function` and `name`, unless the matrix has element type `type`.
inline void requireType(const char *function, const char *name, ConstAnyMatrix matrix,
                        ElementType type) {
  PULSORA_CHECK(InputError, matrix.type == type, function, ": ", name, " holds ",
                elementName(matrix.type), "; it must hold ", elementName(type), ", like x");
}

}  // namespace pulsora
