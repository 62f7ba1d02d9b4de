#pragma once

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "core/check.h"
#include "core/view.h"
#include "lowrank/element.h"
#include "numerics/half.h"

// Shared code of the tests of linear algebra: matrices in any layout, and products in double
// precision.

namespace pulsora::testing {

/// The layout of a matrix in memory.
enum class Layout { RowMajor, ColMajor, CutOut, Strided };
constexpr Layout kLayouts[] = {Layout::RowMajor, Layout::ColMajor, Layout::CutOut, Layout::Strided};
/// Some layout for each index, so that a loop over sizes meets them all.
inline Layout layoutOf(int64_t index) { return kLayouts[index % 4]; }

/// Sizes on either side of the block sizes of kernels.
constexpr int64_t kSizes[] = {0, 1, 15, 16, 17, 33, 1000};

template <class T>
bool sameBits(const std::vector<T> &a, const std::vector<T> &b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// A matrix in the given layout with uniform values, of floating-point types in [-1, 1) and of
/// integer types in [0, 200]. The gaps, and one element behind the last, hold a value that these
/// cannot be (NaN, or 255), so that reading or writing one shows.
template <class T>
class LaidOut {
 public:
  LaidOut(int64_t rows, int64_t cols, Layout layout, unsigned seed) {
    allocate(rows, cols, layout);
    std::mt19937 generator(seed);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) view_(i, j) = drawn(generator);
    }
  }
  /// The values of another matrix.
  LaidOut(MatrixView<const T> from, Layout layout) {
    allocate(from.rows, from.cols, layout);
    for (int64_t i = 0; i < from.rows; ++i) {
      for (int64_t j = 0; j < from.cols; ++j) view_(i, j) = from(i, j);
    }
  }
  LaidOut(const LaidOut &) = delete;
  LaidOut &operator=(const LaidOut &) = delete;

  MatrixView<T> view() { return view_; }
  MatrixView<const T> view() const { return view_; }
  /// All of the memory, gaps included.
  const std::vector<T> &storage() const { return storage_; }

  void fill(T value) {
    for (int64_t i = 0; i < view_.rows; ++i) {
      for (int64_t j = 0; j < view_.cols; ++j) view_(i, j) = value;
    }
  }

 private:
  static T drawn(std::mt19937 &generator) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(std::uniform_int_distribution<int>(0, 200)(generator));
    } else {
      const float value = std::uniform_real_distribution<float>(-1.0f, 1.0f)(generator);
      if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
        return narrow<T>(value);
      } else {
        return static_cast<T>(value);
      }
    }
  }
  static T gap() {
    if constexpr (std::is_same_v<T, Half>) {
      return {uint16_t{0x7E00}};
    } else if constexpr (std::is_same_v<T, BFloat16>) {
      return {uint16_t{0x7FC0}};
    } else if constexpr (std::is_integral_v<T>) {
      return T{255};
    } else {
      return std::numeric_limits<T>::quiet_NaN();
    }
  }
  void allocate(int64_t rows, int64_t cols, Layout layout) {
    switch (layout) {
      case Layout::RowMajor:
        return allocate(rows * cols, {nullptr, rows, cols, cols, 1});
      case Layout::ColMajor:
        return allocate(rows * cols, {nullptr, rows, cols, 1, rows});
      case Layout::CutOut:
        return allocate(rows * (cols + 3), {nullptr, rows, cols, cols + 3, 1});
      case Layout::Strided:
        return allocate(rows * (2 * cols + 1), {nullptr, rows, cols, 2 * cols + 1, 2});
    }
  }
  void allocate(int64_t size, MatrixView<T> view) {
    storage_.assign(static_cast<size_t>(size + 1), gap());
    view_ = view;
    view_.data = storage_.data();
  }

  std::vector<T> storage_;
  MatrixView<T> view_;
};

/// Whether c is alpha A B + beta `before` to the rounding of K + 2 operations in float32, where A
/// is [m, K]. With beta = 0, `before` is not looked at.
inline ::testing::AssertionResult isProduct(float alpha, MatrixView<const float> a,
                                            MatrixView<const float> b, float beta,
                                            MatrixView<const float> before,
                                            MatrixView<const float> c) {
  const double eps = static_cast<double>(std::numeric_limits<float>::epsilon());
  for (int64_t i = 0; i < c.rows; ++i) {
    for (int64_t j = 0; j < c.cols; ++j) {
      const double start =
          beta == 0.0f ? 0.0 : static_cast<double>(beta) * static_cast<double>(before(i, j));
      double exact = start;
      double magnitude = std::fabs(start);
      for (int64_t k = 0; k < a.cols; ++k) {
        const double term = static_cast<double>(alpha) * static_cast<double>(a(i, k)) *
                            static_cast<double>(b(k, j));
        exact += term;
        magnitude += std::fabs(term);
      }
      const double error = std::fabs(static_cast<double>(c(i, j)) - exact);
      if (!(error <= static_cast<double>(a.cols + 2) * eps * magnitude)) {
        return ::testing::AssertionFailure() << "[" << i << ", " << j << "] is " << c(i, j)
                                             << " instead of " << exact << ", K = " << a.cols;
      }
    }
  }
  return ::testing::AssertionSuccess();
}

/// The message of the InputError that `work` throws; empty if it throws none.
template <class Work>
std::string inputErrorOf(const Work &work) {
  try {
    work();
  } catch (const InputError &error) {
    return error.what();
  }
  return "";
}

}  // namespace pulsora::testing
