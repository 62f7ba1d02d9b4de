#include "core/math_util.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <vector>

namespace RPU {
namespace {

std::vector<float> ramp(int64_t size) {
  std::vector<float> values(static_cast<size_t>(size));
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

TEST(View, BlocksRowsAndTranspositionsNameTheSameElements) {
  std::vector<float> data = ramp(12);
  const MatrixView<float> m = rowMajor(data.data(), 3, 4);
  EXPECT_EQ(m(1, 2), 7.0f);
  EXPECT_EQ(m.transposed()(2, 1), 7.0f);
  EXPECT_EQ(m.row(1)[2], 7.0f);
  EXPECT_EQ(m.col(2)[1], 7.0f);
  EXPECT_EQ(m.block(1, 1, 2, 2)(0, 1), 7.0f);
  EXPECT_EQ(m.row(1).segment(1, 3)[1], 7.0f);
  EXPECT_EQ(colMajor(data.data(), 3, 4)(1, 2), 8.0f);
  const MatrixView<const float> constant = m;
  EXPECT_EQ(&constant(2, 3), &m(2, 3));
}

TEST(View, KnowsItsStorageOrder) {
  std::vector<float> data = ramp(12);
  const MatrixView<float> m = rowMajor(data.data(), 3, 4);
  EXPECT_TRUE(m.isRowMajor() && m.isContiguous() && !m.isColMajor());
  EXPECT_TRUE(m.transposed().isColMajor() && !m.transposed().isRowMajor());
  EXPECT_TRUE(m.block(0, 0, 3, 2).isRowMajor() && !m.block(0, 0, 3, 2).isContiguous());
  EXPECT_TRUE(m.block(1, 0, 1, 2).isContiguous());
  EXPECT_TRUE(m.row(0).isContiguous() && !m.col(0).isContiguous());
}

TEST(Gemv, IsOneColumnOfGemm) {
  const int64_t m = 37, k = 300;
  std::vector<float> a(m * k), x(k), y(2 * m, 0.5f), c(m, 0.5f);
  for (size_t i = 0; i < a.size(); ++i) a[i] = std::sin(float(i));
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::cos(float(i));
  for (Isa isa : supportedIsas()) {
    const CpuExec exec{2, isa, Products::Reproducible};
    std::fill(y.begin(), y.end(), 0.5f);
    std::fill(c.begin(), c.end(), 0.5f);
    const MatrixView<const float> matrix = rowMajor<const float>(a.data(), m, k);
    gemv(exec, 0.3f, matrix, vectorView<const float>(x.data(), k), 2.0f,
         VectorView<float>(y.data(), m, 2));
    for (int64_t i = 0; i < m; ++i) {
      float acc = 0.0f;
      for (int64_t j = 0; j < k; ++j) acc = std::fmaf(matrix(i, j), x[size_t(j)], acc);
      EXPECT_EQ(y[size_t(2 * i)], std::fmaf(0.3f, acc, 2.0f * 0.5f));
      EXPECT_EQ(y[size_t(2 * i + 1)], 0.5f);
    }
    gemm(exec, 0.3f, matrix, rowMajor<const float>(x.data(), k, 1), 2.0f, rowMajor(c.data(), m, 1));
    for (int64_t i = 0; i < m; ++i) EXPECT_EQ(c[size_t(i)], y[size_t(2 * i)]);
  }
}

TEST(Ger, AddsTheOuterProduct) {
  std::vector<float> x = {0.1f, -0.7f, 3.0f}, y = {0.3f, 0.9f};
  for (bool transposed : {false, true}) {
    std::vector<float> data = ramp(6);
    const MatrixView<float> a =
        transposed ? colMajor(data.data(), 3, 2) : rowMajor(data.data(), 3, 2);
    std::vector<float> before = data;
    ger({}, 0.7f, vectorView<const float>(x.data(), 3), vectorView<const float>(y.data(), 2), a);
    for (int64_t i = 0; i < 3; ++i) {
      for (int64_t j = 0; j < 2; ++j) {
        const float old = before[size_t(&a(i, j) - data.data())];
        EXPECT_EQ(a(i, j), std::fmaf(0.7f, x[size_t(i)] * y[size_t(j)], old));
      }
    }
  }
}

TEST(Gemm, TakesTheProductsThatAreAskedFor) {
  std::vector<float> a = {1, 2, 3, 4}, b = {5, 6, 7, 8}, c(4);
  CpuExec exec;
  exec.products = Products::Blas;
  const auto product = [&] {
    gemm(exec, 1.0f, rowMajor<const float>(a.data(), 2, 2), rowMajor<const float>(b.data(), 2, 2),
         0.0f, rowMajor(c.data(), 2, 2));
  };
#ifdef PULSORA_HAVE_CBLAS
  product();
  EXPECT_EQ(c, (std::vector<float>{19, 22, 43, 50}));
#else
  EXPECT_THROW(product(), ConfigError);
#endif
}

TEST(Scal, TouchesOnlyTheView) {
  std::vector<float> data = ramp(12);
  scal(2.0f, rowMajor(data.data(), 3, 4).block(1, 1, 2, 2));
  EXPECT_EQ(data, (std::vector<float>{1, 2, 3, 4, 5, 12, 14, 8, 9, 20, 22, 12}));
  scal(0.5f, rowMajor(data.data(), 3, 4).transposed().block(1, 1, 2, 2));
  EXPECT_EQ(data, (std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
}

TEST(Scal, ZeroWipesNan) {
  std::vector<float> data = {std::numeric_limits<float>::quiet_NaN(), 1.0f};
  scal(0.0f, rowMajor(data.data(), 1, 2));
  EXPECT_EQ(data, (std::vector<float>{0.0f, 0.0f}));
}

TEST(Elemcopy, ConvertsInEveryOrder) {
  const int64_t rows = 45, cols = 71;
  std::vector<double> source(rows * cols);
  for (size_t i = 0; i < source.size(); ++i) source[i] = std::sin(double(i));
  const MatrixView<double> sources[] = {rowMajor(source.data(), rows, cols),
                                        colMajor(source.data(), rows, cols)};
  for (const MatrixView<double> &from : sources) {
    for (int order = 0; order < 3; ++order) {
      std::vector<float> target(2 * rows * (cols + 1), -9.0f);
      const MatrixView<float> to = order == 0 ? rowMajor(target.data(), rows, cols, cols + 1)
                                   : order == 1
                                       ? colMajor(target.data(), rows, cols)
                                       : MatrixView<float>(target.data(), rows, cols, 2 * cols, 2);
      elemcopy(from, to);
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < cols; ++j) ASSERT_EQ(to(i, j), static_cast<float>(from(i, j)));
      }
      const auto untouched = std::count(target.begin(), target.end(), -9.0f);
      EXPECT_EQ(untouched, int64_t(target.size()) - rows * cols);
    }
  }
}

TEST(Copy, ChecksShapesAndTakesEmptyMatrices) {
  std::vector<float> from = ramp(6), to(6);
  EXPECT_THROW(copy(rowMajor<const float>(from.data(), 2, 3), rowMajor(to.data(), 3, 2)),
               InputError);
  copy(rowMajor<const float>(from.data(), 2, 3), rowMajor(to.data(), 3, 2).transposed());
  EXPECT_EQ(to, (std::vector<float>{1, 4, 2, 5, 3, 6}));
  copy(rowMajor<const float>(from.data(), 0, 3), rowMajor(to.data(), 0, 3));
  copy(rowMajor<const float>(from.data(), 3, 0), rowMajor(to.data(), 3, 0));
}

}  // namespace
}  // namespace RPU
