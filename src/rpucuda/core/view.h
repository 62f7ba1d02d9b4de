#pragma once

#include <cstdint>
#include <type_traits>

#include "core/platform.h"

// Views refer to elements owned elsewhere: a pointer, extents and strides, all counted in elements.
// They are plain values, are passed by value to kernels on either backend, and never check an
// index.

namespace pulsora {

/// `size` elements, neighbours `stride` apart. A `VectorView<T>` converts to `VectorView<const T>`.
template <class T>
struct VectorView {
  T *data = nullptr;
  int64_t size = 0;
  int64_t stride = 1;

  VectorView() = default;
  PULSORA_HD VectorView(T *data_, int64_t size_, int64_t stride_ = 1)
      : data(data_), size(size_), stride(stride_) {}
  template <class U, class = std::enable_if_t<std::is_same_v<const U, T>>>
  PULSORA_HD VectorView(const VectorView<U> &other)
      : data(other.data), size(other.size), stride(other.stride) {}

  PULSORA_HD T &operator[](int64_t i) const { return data[i * stride]; }
  PULSORA_HD bool isContiguous() const { return stride == 1 || size <= 1; }
  /// Elements [start, start + count).
  PULSORA_HD VectorView segment(int64_t start, int64_t count) const {
    return {data + start * stride, count, stride};
  }
};

/// A `rows` x `cols` matrix whose element (i, j) is `data[i * rowStride + j * colStride]`. Row
/// major, column major, transposed and cut-out matrices are all of this one type. A `MatrixView<T>`
/// converts to `MatrixView<const T>`.
template <class T>
struct MatrixView {
  T *data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t rowStride = 0;
  int64_t colStride = 1;

  MatrixView() = default;
  PULSORA_HD MatrixView(T *data_, int64_t rows_, int64_t cols_, int64_t rowStride_,
                        int64_t colStride_)
      : data(data_), rows(rows_), cols(cols_), rowStride(rowStride_), colStride(colStride_) {}
  template <class U, class = std::enable_if_t<std::is_same_v<const U, T>>>
  PULSORA_HD MatrixView(const MatrixView<U> &other)
      : data(other.data),
        rows(other.rows),
        cols(other.cols),
        rowStride(other.rowStride),
        colStride(other.colStride) {}

  PULSORA_HD T &operator()(int64_t i, int64_t j) const {
    return data[i * rowStride + j * colStride];
  }
  PULSORA_HD int64_t size() const { return rows * cols; }

  PULSORA_HD MatrixView transposed() const { return {data, cols, rows, colStride, rowStride}; }
  PULSORA_HD VectorView<T> row(int64_t i) const { return {data + i * rowStride, cols, colStride}; }
  PULSORA_HD VectorView<T> col(int64_t j) const { return {data + j * colStride, rows, rowStride}; }
  /// The `nr` x `nc` matrix whose element (0, 0) is element (r0, c0) of this matrix.
  PULSORA_HD MatrixView block(int64_t r0, int64_t c0, int64_t nr, int64_t nc) const {
    return {data + r0 * rowStride + c0 * colStride, nr, nc, rowStride, colStride};
  }

  /// Elements of a row are adjacent in memory (rows may lie further apart than `cols`).
  PULSORA_HD bool isRowMajor() const { return colStride == 1 || cols <= 1; }
  /// Elements of a column are adjacent in memory (columns may lie further apart than `rows`).
  PULSORA_HD bool isColMajor() const { return rowStride == 1 || rows <= 1; }
  /// Row major without gaps: the elements are `data[0 .. rows * cols)` in row-major order.
  PULSORA_HD bool isContiguous() const { return isRowMajor() && (rowStride == cols || rows <= 1); }
};

/// A gapless row-major matrix.
template <class T>
PULSORA_HD MatrixView<T> rowMajor(T *data, int64_t rows, int64_t cols) {
  return {data, rows, cols, cols, 1};
}

/// A row-major matrix whose consecutive rows lie `rowStride` apart.
template <class T>
PULSORA_HD MatrixView<T> rowMajor(T *data, int64_t rows, int64_t cols, int64_t rowStride) {
  return {data, rows, cols, rowStride, 1};
}

/// A gapless column-major matrix.
template <class T>
PULSORA_HD MatrixView<T> colMajor(T *data, int64_t rows, int64_t cols) {
  return {data, rows, cols, 1, rows};
}

/// `size` adjacent elements.
template <class T>
PULSORA_HD VectorView<T> vectorView(T *data, int64_t size) {
  return {data, size, 1};
}

}  // namespace pulsora
