#pragma once

#include "core/backend.h"
#include "core/platform.h"
#include "core/vector_access.h"
#include "core/view.h"
#include "numerics/math.h"

// The element functors of inference/.

namespace pulsora {

/// Calls functor(i) for the elements of a matrix, or for groups of so many; on a CPU functor.row(i)
/// for its rows, which spares a division for each element.
template <class Functor>
void forRows(const Context &context, int64_t rows, int64_t cols, const Functor &functor,
             int64_t group = 1) {
  if (!context.onCpu()) {
    forEach(context, (rows * cols + group - 1) / group, functor);
    return;
  }
  parallelRange(context, rows, 1 + kStepsPerThread / (cols + 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) functor.row(i);
  });
}

/// to[i] = value.
struct Filler {
  float value;
  float *to;

  PULSORA_HD void operator()(int64_t i) const { to[i] = value; }
};

/// to[i] = *value.
struct Spreader {
  const float *value;
  float *to;

  PULSORA_HD void operator()(int64_t i) const { to[i] = *value; }
};

/// to(i, j) = from(i, j) / scale[i] within [-1, 1]; 0 where the scale is 0. `size` is that of the
/// matrices.
struct RowNormaliser {
  const float *from;
  const float *scale;
  int64_t cols;
  float *to;
  int64_t size;

  static constexpr int kElements = 8;  ///< of a call

  PULSORA_HD void operator()(int64_t group) const {
    const int64_t first = kElements * group;
    float v[kElements];
    loadFloats(from + first, size - first, v);
    int64_t row = first / cols;
    int64_t col = first % cols;
    for (int l = 0; l < kElements; ++l) {
      if (first + l >= size) break;
      v[l] = normalised(v[l], scale[row]);
      const bool isLast = ++col == cols;
      row += isLast ? 1 : 0;
      col = isLast ? 0 : col;
    }
    storeFloats(v, size - first, to + first);
  }
  void row(int64_t i) const {
    const float s = scale[i];
    for (int64_t j = i * cols; j < (i + 1) * cols; ++j) to[j] = normalised(from[j], s);
  }

 private:
  PULSORA_HD static float normalised(float v, float s) {
    return s > 0.0f ? pulsora::clamp(v / s, -1.0f, 1.0f) : 0.0f;
  }
};

/// to[i] = the smallest magnitude in row i that is not exceeded by `rank` values of the row: its
/// bits are found by halving.
struct RowQuantile {
  MatrixView<const float> a;
  int64_t rank;
  float *to;

  PULSORA_HD void operator()(int64_t i) const {
    const VectorView<const float> row = a.row(i);
    uint32_t low = 0;
    uint32_t high = 0x7f7fffffU;  // the largest finite number
    while (low < high) {
      const uint32_t middle = low + (high - low) / 2;
      const auto limit = pulsora::bitCast<float>(middle);
      int64_t within = 0;
      for (int64_t j = 0; j < row.size; ++j) within += pulsora::abs(row[j]) <= limit ? 1 : 0;
      const bool enough = within >= rank;
      high = enough ? middle : high;
      low = enough ? low : middle + 1;
    }
    to[i] = pulsora::bitCast<float>(low);
  }
};

/// to(i, j) = from(i, j) factor[j], kElements at a time. Rows may be in parts of `partRows`, each
/// of which has factors of its own.
struct FactorOfColumns {
  static constexpr int kElements = 4;
  MatrixView<const float> from;
  const float *factor;
  MatrixView<float> to;
  int64_t partRows;

  PULSORA_HD void operator()(int64_t group) const {
    const int64_t first = group * kElements;
    const int64_t left = to.size() - first;
    if (from.isContiguous() && to.isContiguous() && to.size() <= 0x7fffffff) {
      Place place = placeOf(static_cast<uint32_t>(first), static_cast<uint32_t>(to.cols),
                            static_cast<uint32_t>(partRows));
      float x[kElements];
      loadFloats(from.data + first, left, x);
      for (int e = 0; e < kElements && e < left; ++e) x[e] *= place.next();
      storeFloats(x, left, to.data + first);
      return;
    }
    for (int64_t i = first; i < first + kElements && i < to.size(); ++i) {
      const int64_t row = i / to.cols;
      const int64_t col = i - row * to.cols;
      to(row, col) = from(row, col) * factor[row / partRows * to.cols + col];
    }
  }
  /// A row of the first part.
  void row(int64_t i) const {
    for (int64_t j = 0; j < to.cols; ++j) to(i, j) = from(i, j) * factor[j];
  }

 private:
  /// The place of an element, and its factor.
  struct Place {
    const float *factor;  // of the part
    uint32_t col, cols;
    uint32_t row, rows;  // within the part

    /// The factor; moves to the next element.
    PULSORA_HD float next() {
      const float own = factor[col];
      if (++col < cols) return own;
      col = 0;
      if (++row < rows) return own;
      row = 0;
      factor += cols;
      return own;
    }
  };
  PULSORA_HD Place placeOf(uint32_t i, uint32_t cols, uint32_t rows) const {
    const uint32_t row = i / cols;
    const uint32_t part = row / rows;
    return {factor + static_cast<size_t>(part) * cols, i - row * cols, cols, row - part * rows,
            rows};
  }
};

/// Calls FactorOfColumns for all elements; without `partRows`, all rows have the same factors.
inline void scaleColumns(const Context &context, MatrixView<const float> from, const float *factor,
                         MatrixView<float> to, int64_t partRows = 0) {
  const int64_t part = partRows > 0 ? partRows : to.rows;
  const int64_t rows = context.onCpu() ? part : to.rows;  // a GPU takes all parts at once
  for (int64_t first = 0; first < to.rows; first += rows, factor += to.cols) {
    const FactorOfColumns columns{from.block(first, 0, rows, to.cols), factor,
                                  to.block(first, 0, rows, to.cols), part};
    forRows(context, rows, to.cols, columns, FactorOfColumns::kElements);
  }
}

/// to(i, j) = from(i, j) factor[i].
struct FactorOfRows {
  const float *from;
  const float *factor;
  MatrixView<float> to;

  PULSORA_HD void operator()(int64_t i) const {
    to(i / to.cols, i % to.cols) = from[i] * factor[i / to.cols];
  }
  void row(int64_t i) const {
    for (int64_t j = 0; j < to.cols; ++j) to(i, j) = from[i * to.cols + j] * factor[i];
  }
};

/// weights(i, j) -= reference[j].
struct ReferenceColumn {
  const float *reference;
  int64_t cols;
  float *weights;

  PULSORA_HD void operator()(int64_t i) const { weights[i] -= reference[i % cols]; }
};

/// |a(i, j)|, for sums over rows.
struct MagnitudeTerm {
  MatrixView<const float> a;

  PULSORA_HD double operator()(int64_t i, int64_t j) const {
    return static_cast<double>(pulsora::abs(a(i, j)));
  }
};

/// (factor[i] a(i, j) - b(i, j))^2, for sums over rows.
struct SquaredDifference {
  const float *a;
  const float *factor;  // null: 0
  const float *b;
  int64_t cols;

  PULSORA_HD double operator()(int64_t i, int64_t j) const {
    const int64_t at = i * cols + j;
    const double seen = factor ? static_cast<double>(factor[i]) * static_cast<double>(a[at]) : 0.0;
    const double difference = seen - static_cast<double>(b[at]);
    return difference * difference;
  }
};

}  // namespace pulsora
