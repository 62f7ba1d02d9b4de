#include "forecast/small_matrix.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace pulsora {
namespace {

constexpr int kMostSweeps = 60;

/// The rotation that makes a symmetric [[p, r], [r, q]] diagonal.
struct Rotation {
  double cosine;
  double sine;

  static Rotation of(double p, double q, double r) {
    const double ratio = (q - p) / (2.0 * r);
    const double t = std::copysign(1.0, ratio) / (std::abs(ratio) + std::sqrt(1.0 + ratio * ratio));
    const double c = 1.0 / std::sqrt(1.0 + t * t);
    return {c, c * t};
  }
  /// Rotates two lines of elements.
  void apply(double *a, double *b, int64_t count, int64_t stride = 1) const {
    for (int64_t k = 0; k < count; ++k) {
      const double x = a[k * stride];
      const double y = b[k * stride];
      a[k * stride] = cosine * x - sine * y;
      b[k * stride] = sine * x + cosine * y;
    }
  }
};

double inner(const double *a, const double *b, int64_t count) {
  double lanes[8] = {};
  int64_t k = 0;
  for (; k + 8 <= count; k += 8) {
    for (int64_t l = 0; l < 8; ++l) lanes[l] += a[k + l] * b[k + l];
  }
  double sum = ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
               ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
  for (; k < count; ++k) sum += a[k] * b[k];
  return sum;
}

std::vector<int64_t> fallingOrder(const std::vector<double> &values) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
  });
  return order;
}

/// Puts the rows of `a` in another order.
void reorder(const std::vector<int64_t> &order, int64_t cols, SmallMatrix &a) {
  SmallMatrix sorted(a.size());
  for (size_t i = 0; i < order.size(); ++i) {
    std::copy_n(a.begin() + order[i] * cols, cols, sorted.begin() + static_cast<int64_t>(i) * cols);
  }
  a.swap(sorted);
}

/// Subtracts the components of a row along the first `count` rows, which are orthonormal.
void removeRows(int64_t count, int64_t cols, const double *rows, double *from) {
  for (int pass = 0; pass < 2; ++pass) {  // twice is enough, whatever the angles
    for (int64_t k = 0; k < count; ++k) {
      const double *other = rows + k * cols;
      const double share = inner(other, from, cols);
      for (int64_t j = 0; j < cols; ++j) from[j] -= share * other[j];
    }
  }
}

SmallMatrix unitMatrix(int64_t n) {
  SmallMatrix unit(static_cast<size_t>(n * n));
  for (int64_t i = 0; i < n; ++i) unit[static_cast<size_t>(i * (n + 1))] = 1.0;
  return unit;
}

}  // namespace

void symmetricEigen(int64_t n, SmallMatrix &matrix, std::vector<double> &values,
                    SmallMatrix &vectors) {
  double *a = matrix.data();
  SmallMatrix rows = unitMatrix(n);  // eigenvectors as rows
  bool rotated = true;
  for (int sweep = 0; rotated && sweep < kMostSweeps; ++sweep) {
    rotated = false;
    for (int64_t p = 0; p < n; ++p) {
      for (int64_t q = p + 1; q < n; ++q) {
        const double r = a[p * n + q];
        const double limit = 1e-17 * std::sqrt(std::abs(a[p * (n + 1)] * a[q * (n + 1)]));
        if (std::abs(r) <= limit || r == 0.0) continue;
        rotated = true;
        const Rotation rotation = Rotation::of(a[p * (n + 1)], a[q * (n + 1)], r);
        rotation.apply(a + p * n, a + q * n, n);
        rotation.apply(a + p, a + q, n, n);
        rotation.apply(&rows[static_cast<size_t>(p * n)], &rows[static_cast<size_t>(q * n)], n);
        a[p * n + q] = a[q * n + p] = 0.0;
      }
    }
  }
  values.resize(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) values[static_cast<size_t>(i)] = a[i * (n + 1)];
  const std::vector<int64_t> order = fallingOrder(values);
  std::sort(values.begin(), values.end(), [](double x, double y) { return x > y; });
  vectors.resize(static_cast<size_t>(n * n));
  for (int64_t i = 0; i < n; ++i) {
    const double *row = &rows[static_cast<size_t>(order[static_cast<size_t>(i)] * n)];
    for (int64_t k = 0; k < n; ++k) vectors[static_cast<size_t>(k * n + i)] = row[k];
  }
}

bool inverseCholesky(int64_t n, const SmallMatrix &matrix, SmallMatrix &inverse) {
  SmallMatrix lower(static_cast<size_t>(n * n));
  const auto at = [n](SmallMatrix &m, int64_t i, int64_t j) -> double & {
    return m[static_cast<size_t>(i * n + j)];
  };
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      const double rest =
          matrix[static_cast<size_t>(i * n + j)] - inner(&at(lower, i, 0), &at(lower, j, 0), j);
      if (i == j) {
        // Below this bound, the result would be rounding error of the products in the matrix.
        if (!(rest > 1e-11 * matrix[static_cast<size_t>(i * (n + 1))])) return false;
        at(lower, i, i) = std::sqrt(rest);
      } else {
        at(lower, i, j) = rest / at(lower, j, j);
      }
    }
  }
  // R = L^T, and R^-1 is the transpose of L^-1.
  inverse.assign(static_cast<size_t>(n * n), 0.0);
  for (int64_t column = 0; column < n; ++column) {
    for (int64_t i = column; i < n; ++i) {
      double sum = i == column ? 1.0 : 0.0;
      for (int64_t k = column; k < i; ++k) sum -= at(lower, i, k) * at(inverse, column, k);
      at(inverse, column, i) = sum / at(lower, i, i);
    }
  }
  return true;
}

void orthogonaliseRows(int64_t rows, int64_t cols, SmallMatrix &a, SmallMatrix &left,
                       std::vector<double> &norms) {
  left = unitMatrix(rows);
  const auto row = [&](SmallMatrix &m, int64_t i, int64_t width) {
    return &m[static_cast<size_t>(i * width)];
  };
  bool rotated = true;
  for (int sweep = 0; rotated && sweep < kMostSweeps; ++sweep) {
    rotated = false;
    for (int64_t p = 0; p < rows; ++p) {
      for (int64_t q = p + 1; q < rows; ++q) {
        double *x = row(a, p, cols);
        double *y = row(a, q, cols);
        const double xx = inner(x, x, cols);
        const double yy = inner(y, y, cols);
        const double xy = inner(x, y, cols);
        if (std::abs(xy) <= 1e-15 * std::sqrt(xx * yy) || xy == 0.0) continue;
        rotated = true;
        const Rotation rotation = Rotation::of(xx, yy, xy);
        rotation.apply(x, y, cols);
        rotation.apply(row(left, p, rows), row(left, q, rows), rows);
      }
    }
  }
  norms.resize(static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; ++i) {
    norms[static_cast<size_t>(i)] = std::sqrt(inner(row(a, i, cols), row(a, i, cols), cols));
  }
  const std::vector<int64_t> order = fallingOrder(norms);
  reorder(order, cols, a);
  reorder(order, rows, left);
  std::sort(norms.begin(), norms.end(), [](double x, double y) { return x > y; });
}

void completeRows(int64_t first, int64_t rows, int64_t cols, SmallMatrix &a) {
  double least = 0.5;
  int64_t unit = 0;
  for (int64_t i = first; i < rows; ++i) {
    double *made = &a[static_cast<size_t>(i * cols)];
    double left = 0.0;
    while (left < least) {
      if (unit == cols) {  // the complement is spread over many unit vectors
        unit = 0;
        least /= 2.0;
      }
      std::fill_n(made, cols, 0.0);
      made[unit++] = 1.0;
      removeRows(i, cols, a.data(), made);
      left = std::sqrt(inner(made, made, cols));
    }
    for (int64_t j = 0; j < cols; ++j) made[j] /= left;
  }
}

void orthonormaliseRows(int64_t rows, int64_t cols, SmallMatrix &a) {
  for (int64_t i = 0; i < rows; ++i) {
    double *row = &a[static_cast<size_t>(i * cols)];
    const double before = std::sqrt(inner(row, row, cols));
    removeRows(i, cols, a.data(), row);
    const double left = std::sqrt(inner(row, row, cols));
    if (left > 1e-7 * before) {
      for (int64_t j = 0; j < cols; ++j) row[j] /= left;
    } else {
      completeRows(i, i + 1, cols, a);
    }
  }
}

}  // namespace pulsora
