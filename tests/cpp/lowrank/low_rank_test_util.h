#pragma once

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <ostream>
#include <type_traits>
#include <vector>

#include "lowrank/gated_low_rank.h"
#include "util/matrix_test_util.h"

// Shared code of the tests of low-rank updates: operands in any layout, and references in double
// precision.

namespace pulsora::testing {

struct Shape {
  int64_t m, k1, n, k2;
};
inline std::ostream &operator<<(std::ostream &out, const Shape &s) {
  return out << "M " << s.m << ", K1 " << s.k1 << ", N " << s.n << ", K2 " << s.k2;
}

/// Operands of an update, with codes for every row and a scale of 2.
template <class T>
struct Update {
  Shape shape;
  LaidOut<T> x, v, codes, u;

  Update(const Shape &s, Layout ofX, Layout ofFactors, unsigned seed)
      : shape(s),
        x(s.m, s.k1, ofX, seed),
        v(s.k1, s.n, ofFactors, seed + 100),
        codes(s.m, s.n, ofX, seed + 200),
        u(s.k2, s.n, ofFactors, seed + 300) {}

  GatedLowRank operands() const {
    return {x.view(), v.view(), Codes::perRow(codes.view()), u.view(), 2.0f};
  }
};

/// Destinations of all gradients.
template <class T>
struct Gradients {
  LaidOut<T> x, v;
  LaidOut<float> codes;
  LaidOut<T> u;

  Gradients(const Shape &s, Layout layout)
      : x(s.m, s.k1, layout, 1),
        v(s.k1, s.n, layout, 1),
        codes(s.m, s.n, layout, 1),
        u(s.k2, s.n, layout, 1) {}

  GatedGradients targets() { return {x.view(), v.view(), codes.view(), u.view(), {}}; }
};

/// A row-major matrix in double precision.
struct Exact {
  int64_t rows = 0, cols = 0;
  std::vector<double> values;

  Exact() = default;
  Exact(int64_t r, int64_t c) : rows(r), cols(c), values(static_cast<size_t>(r * c)) {}
  template <class T>
  explicit Exact(MatrixView<const T> view) : Exact(view.rows, view.cols) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) (*this)(i, j) = static_cast<double>(widen(view(i, j)));
    }
  }
  double &operator()(int64_t i, int64_t j) { return values[static_cast<size_t>(i * cols + j)]; }
  double operator()(int64_t i, int64_t j) const {
    return values[static_cast<size_t>(i * cols + j)];
  }

  Exact transposed() const {
    Exact t(cols, rows);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) t(j, i) = (*this)(i, j);
    }
    return t;
  }
  friend Exact operator*(const Exact &a, const Exact &b) {
    Exact c(a.rows, b.cols);
    for (int64_t i = 0; i < a.rows; ++i) {
      for (int64_t k = 0; k < a.cols; ++k) {
        for (int64_t j = 0; j < b.cols; ++j) c(i, j) += a(i, k) * b(k, j);
      }
    }
    return c;
  }
  Exact times(const Exact &other, double scale) const {
    Exact product(rows, cols);
    for (size_t i = 0; i < values.size(); ++i)
      product.values[i] = values[i] * other.values[i] * scale;
    return product;
  }
};

struct Reference {
  Exact y, dx, dv, dcodes, du;

  template <class T>
  Exact plus(MatrixView<const T> base) const {
    Exact sum(base);
    for (size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += y.values[i];
    return sum;
  }
};

template <class T>
Reference referenceOf(const Update<T> &update) {
  const LaidOut<T> &x = update.x, &v = update.v, &codes = update.codes, &u = update.u;
  Reference all;
  const Exact h = Exact(x.view()) * Exact(v.view());
  all.y = h.times(Exact(codes.view()), 2.0) * Exact(u.view()).transposed();
  return all;
}

template <class T>
Reference referenceOf(const Update<T> &update, MatrixView<const T> dy) {
  Reference all = referenceOf(update);
  const LaidOut<T> &x = update.x, &v = update.v, &c = update.codes, &u = update.u;
  const Exact codes(c.view()), gradient(dy);
  const Exact h = Exact(x.view()) * Exact(v.view());
  const Exact g = gradient * Exact(u.view());
  const Exact gated = g.times(codes, 2.0);
  all.dx = gated * Exact(v.view()).transposed();
  all.dv = Exact(x.view()).transposed() * gated;
  all.dcodes = h.times(g, 2.0);
  all.du = gradient.transposed() * h.times(codes, 2.0);
  return all;
}

/// A layer with an update.
template <class T>
struct Linear {
  Update<T> update;
  LaidOut<T> weight, bias;

  Linear(const Shape &s, Layout ofX, Layout ofFactors, unsigned seed)
      : update(s, ofX, ofFactors, seed),
        weight(s.k2, s.k1, ofFactors, seed + 400),
        bias(1, s.k2, Layout::RowMajor, seed + 500) {}

  Exact reference(bool hasBias) const {
    Exact y = referenceOf(update).y;
    const Exact base = Exact(update.x.view()) * Exact(weight.view()).transposed();
    for (int64_t i = 0; i < y.rows; ++i) {
      for (int64_t j = 0; j < y.cols; ++j)
        y(i, j) += base(i, j) + (hasBias ? static_cast<double>(widen(bias.view()(0, j))) : 0.0);
    }
    return y;
  }
};

/// Relative errors in the norm that results may have: the rounding of the result, and for float32
/// the rounding of sums.
template <class T>
constexpr double toleranceOf() {
  return std::is_same_v<T, float> ? 1e-6 : std::is_same_v<T, Half> ? 5e-4 : 4e-3;
}

/// Whether the norm of the difference is within `tolerance` of the norm of the reference.
template <class T>
::testing::AssertionResult isNear(const Exact &reference, MatrixView<const T> made,
                                  double tolerance) {
  if (reference.rows != made.rows || reference.cols != made.cols)
    return ::testing::AssertionFailure() << "it has another shape";
  double error = 0.0, norm = 0.0;
  for (int64_t i = 0; i < made.rows; ++i) {
    for (int64_t j = 0; j < made.cols; ++j) {
      const double difference = static_cast<double>(widen(made(i, j))) - reference(i, j);
      error += difference * difference;
      norm += reference(i, j) * reference(i, j);
    }
  }
  if (!(std::sqrt(error) <= tolerance * std::sqrt(norm)))
    return ::testing::AssertionFailure() << "relative error " << std::sqrt(error / norm);
  return ::testing::AssertionSuccess();
}
template <class T>
::testing::AssertionResult isNear(const Exact &reference, MatrixView<T> made, double tolerance) {
  return isNear(reference, MatrixView<const T>(made), tolerance);
}

/// All elements of some matrices, gaps included.
template <class... Matrices>
std::vector<unsigned char> bytesOf(const Matrices &...matrices) {
  std::vector<unsigned char> all;
  const auto append = [&](const auto &storage) {
    const auto *bytes = reinterpret_cast<const unsigned char *>(storage.data());
    all.insert(all.end(), bytes, bytes + storage.size() * sizeof(storage[0]));
  };
  (append(matrices.storage()), ...);
  return all;
}

}  // namespace pulsora::testing
