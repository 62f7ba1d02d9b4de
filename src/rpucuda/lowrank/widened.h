#pragma once

#include "core/buffer.h"
#include "linalg/math_util.h"
#include "lowrank/any_matrix.h"
#include "lowrank/functors.h"

namespace pulsora {

/// A matrix as floats: the matrix itself if it holds floats, otherwise a widened copy in storage
/// that is reused.
class Widened {
 public:
  MatrixView<const float> of(const Context &context, ConstAnyMatrix matrix) {
    if (matrix.type == ElementType::Float32) return matrix.as<float>();
    return copyOf(context, matrix);
  }
  /// of() for a matrix whose rows products read many times: on the CPU, the elements of a row are
  /// adjacent.
  MatrixView<const float> inRows(const Context &context, ConstAnyMatrix matrix) {
    return context.onCpu() && matrix.colStride != 1 ? copyOf(context, matrix) : of(context, matrix);
  }
  /// inRows() of the transposed matrix; on a GPU, of() transposed.
  MatrixView<const float> transposedInRows(const Context &context, ConstAnyMatrix matrix) {
    return context.onCpu() ? inRows(context, matrix.transposed())
                           : of(context, matrix).transposed();
  }

 private:
  MatrixView<const float> copyOf(const Context &context, ConstAnyMatrix matrix) {
    storage_.reserve(context, matrix.size());
    const MatrixView<float> to = rowMajor(storage_.data(), matrix.rows, matrix.cols);
    withElement(matrix.type, [&](auto element) {
      using T = decltype(element);
      makeElements(context, to.rows, to.cols, Widener<T>{matrix.as<T>(), to});
    });
    return to;
  }

  Buffer<float> storage_;
};

/// Destination of a product in single precision that becomes a matrix of any type: view() is that
/// matrix itself if it holds floats, otherwise storage that finish() rounds.
class Narrowed {
 public:
  MatrixView<float> view(const Context &context, AnyMatrix target) {
    if (target.type == ElementType::Float32) return target.as<float>();
    storage_.reserve(context, target.size());
    return rowMajor(storage_.data(), target.rows, target.cols);
  }
  /// target = base + view(context, target); a `base` without data is 0. Does nothing for a target
  /// that holds floats.
  void finish(const Context &context, ConstAnyMatrix base, AnyMatrix target) {
    const MatrixView<const float> sum = rowMajor(storage_.data(), target.rows, target.cols);
    withElement(target.type, [&](auto element) {
      using T = decltype(element);
      if constexpr (!std::is_same_v<T, float>) {
        makeElements(context, target.rows, target.cols,
                     Narrower<T>{sum, base.as<T>(), target.as<T>()});
      }
    });
  }

 private:
  Buffer<float> storage_;
};

/// Number of rows of a batch per panel: on the CPU as many rows of `width` floats as fit in the
/// caches; on a GPU many, within bounds of memory. It depends on sizes alone, and so do the bits of
/// sums over rows.
inline int64_t rowsAtATime(const Context &context, int64_t width) {
  const int64_t floats = int64_t{1} << (context.onCpu() ? 18 : 26);
  const int64_t least = context.onCpu() ? 64 : 4096;
  return pulsora::max(least, floats / pulsora::max(width, int64_t{1}) / 64 * 64);
}

}  // namespace pulsora
