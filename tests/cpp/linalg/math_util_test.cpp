#include "linalg/math_util.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "util/matrix_test_util.h"

namespace pulsora {
namespace {

using testing::inputErrorOf;
using testing::isProduct;
using testing::kLayouts;
using testing::kSizes;
using testing::LaidOut;
using testing::Layout;
using testing::layoutOf;
using testing::sameBits;

struct Factors {
  float alpha, beta;
};
const Factors kFactors[] = {{1.0f, 0.0f}, {1.0f, 1.0f}, {0.0f, 0.0f},
                            {0.0f, 1.0f}, {0.3f, 0.0f}, {-0.3f, 0.7f}};

Context twoThreads() {
  Context two;
  two.cpu.threads = 2;
  return two;
}

// Contents that must not be read if beta is 0.
void wipeUnlessRead(float beta, LaidOut<float> &c) {
  if (beta == 0.0f) c.fill(std::numeric_limits<float>::quiet_NaN());
}

struct Shape {
  int64_t m, n, k;
};

std::vector<Shape> shapes() {
  std::vector<Shape> all = {{1000, 33, 17}, {17, 1000, 33}, {33, 17, 1000}};
  for (const int64_t m : {0, 1, 15, 16, 17, 33}) {
    for (const int64_t n : {0, 1, 15, 16, 17, 33}) {
      for (const int64_t k : {0, 1, 15, 16, 17, 33}) all.push_back({m, n, k});
    }
  }
  return all;
}

TEST(Gemm, IsTheProductToRounding) {
  int64_t index = 0;
  for (const Shape &s : shapes()) {
    for (const Factors &f : kFactors) {
      ++index;
      const LaidOut<float> a(s.m, s.k, layoutOf(index), 1);
      const LaidOut<float> b(s.k, s.n, layoutOf(index / 4), 2);
      LaidOut<float> c(s.m, s.n, layoutOf(index / 16), 3);
      wipeUnlessRead(f.beta, c);
      const LaidOut<float> before(s.m, s.n, Layout::RowMajor, 3);
      gemm(twoThreads(), f.alpha, a.view(), b.view(), f.beta, c.view());
      ASSERT_TRUE(isProduct(f.alpha, a.view(), b.view(), f.beta, before.view(), c.view()))
          << "[" << s.m << ", " << s.k << "] x [" << s.k << ", " << s.n << "], alpha " << f.alpha
          << ", beta " << f.beta;
    }
  }
}

TEST(Accumulate, AddsProductByProductInTheOrderOfK) {
  for (const Layout layout : kLayouts) {
    const LaidOut<float> a(17, 33, layout, 1), b(33, 16, Layout::CutOut, 2);
    LaidOut<float> c(17, 16, layout, 3), expected(17, 16, layout, 3);
    for (int64_t k = 0; k < 33; ++k) {
      for (int64_t i = 0; i < 17; ++i) {
        for (int64_t j = 0; j < 16; ++j)
          expected.view()(i, j) = std::fmaf(a.view()(i, k), b.view()(k, j), expected.view()(i, j));
      }
    }
    accumulate(twoThreads(), a.view().block(0, 0, 17, 20), b.view().block(0, 0, 20, 16), c.view());
    accumulate(twoThreads(), a.view().block(0, 20, 17, 13), b.view().block(20, 0, 13, 16),
               c.view());
    EXPECT_TRUE(sameBits(c.storage(), expected.storage())) << int(layout);
  }
}

TEST(Gemv, IsTheProductToRounding) {
  int64_t index = 0;
  for (const int64_t m : kSizes) {
    for (const int64_t k : kSizes) {
      if (m == 1000 && k == 1000) continue;
      for (const Factors &f : kFactors) {
        ++index;
        const LaidOut<float> a(m, k, layoutOf(index), 1);
        const LaidOut<float> x(k, 1, layoutOf(index / 2), 2);
        LaidOut<float> y(m, 1, layoutOf(index / 3), 3);
        wipeUnlessRead(f.beta, y);
        const LaidOut<float> before(m, 1, Layout::RowMajor, 3);
        gemv(twoThreads(), f.alpha, a.view(), x.view().col(0), f.beta, y.view().col(0));
        ASSERT_TRUE(isProduct(f.alpha, a.view(), x.view(), f.beta, before.view(), y.view()))
            << "[" << m << ", " << k << "], alpha " << f.alpha << ", beta " << f.beta;
      }
    }
  }
}

TEST(Gemv, IsOneColumnOfGemm) {
  const int64_t m = 37, k = 300;
  const LaidOut<float> a(m, k, Layout::RowMajor, 1), x(k, 1, Layout::RowMajor, 2);
  for (const Isa isa : supportedIsas()) {
    Context context;
    context.cpu = {2, isa};
    LaidOut<float> y(m, 1, Layout::Strided, 3), expected(m, 1, Layout::Strided, 3);
    LaidOut<float> c(m, 1, Layout::RowMajor, 3);
    for (int64_t i = 0; i < m; ++i) {
      float acc = 0.0f;
      for (int64_t j = 0; j < k; ++j) acc = std::fmaf(a.view()(i, j), x.view()(j, 0), acc);
      expected.view()(i, 0) = std::fmaf(0.3f, acc, 2.0f * expected.view()(i, 0));
    }
    gemv(twoThreads(), 0.3f, a.view(), vectorView(x.view().data, k), 2.0f, y.view().col(0));
    gemm(twoThreads(), 0.3f, a.view(), x.view(), 2.0f, c.view());
    EXPECT_TRUE(sameBits(y.storage(), expected.storage())) << isaName(isa);
    for (int64_t i = 0; i < m; ++i) EXPECT_EQ(c.view()(i, 0), expected.view()(i, 0));
  }
}

TEST(Ger, AddsTheOuterProductToTheBit) {
  int64_t index = 0;
  for (const int64_t m : kSizes) {
    for (const int64_t n : kSizes) {
      if (m == 1000 && n == 1000) continue;
      for (const float alpha : {0.0f, 1.0f, 0.7f}) {
        ++index;
        const LaidOut<float> x(m, 1, layoutOf(index), 1), y(1, n, layoutOf(index / 2), 2);
        LaidOut<float> a(m, n, layoutOf(index / 3), 3), expected(m, n, layoutOf(index / 3), 3);
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < n; ++j) {
            float &element = expected.view()(i, j);
            element = std::fmaf(alpha, x.view()(i, 0) * y.view()(0, j), element);
          }
        }
        ger(twoThreads(), alpha, x.view().col(0), y.view().row(0), a.view());
        ASSERT_TRUE(sameBits(a.storage(), expected.storage())) << m << " x " << n << ", " << alpha;
      }
    }
  }
}

TEST(Scal, MultipliesTheViewAndNothingElse) {
  Context context;
  context.cpu.threads = 2;
  for (const Layout layout : kLayouts) {
    for (const int64_t m : kSizes) {
      for (const int64_t n : {0, 1, 17, 33}) {
        for (const float alpha : {0.0f, 1.0f, -0.7f}) {
          LaidOut<float> a(m, n, layout, 1), expected(m, n, layout, 1);
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < n; ++j)
              expected.view()(i, j) = alpha == 0.0f ? 0.0f : alpha * expected.view()(i, j);
          }
          scal(context, alpha, a.view());
          ASSERT_TRUE(sameBits(a.storage(), expected.storage()))
              << m << " x " << n << ", " << alpha;
        }
      }
    }
  }
}

TEST(Scal, ZeroWipesNan) {
  std::vector<float> data = {std::numeric_limits<float>::quiet_NaN(), 1.0f,
                             -std::numeric_limits<float>::infinity()};
  scal(Context{}, 0.0f, rowMajor(data.data(), 1, 2));
  EXPECT_EQ(data[0], 0.0f);
  EXPECT_EQ(data[1], 0.0f);
  EXPECT_TRUE(std::isinf(data[2]));
}

TEST(LinearAlgebra, WrongShapesAreNamedAndNothingChanges) {
  const LaidOut<float> a(2, 3, Layout::RowMajor, 1), b(4, 5, Layout::RowMajor, 2);
  LaidOut<float> c(2, 5, Layout::RowMajor, 3);
  const std::vector<float> before = c.storage();
  const Context context;
  EXPECT_EQ(
      inputErrorOf([&] { gemm(twoThreads(), 1.0f, a.view(), b.view(), 0.0f, c.view()); }),
      "gemm: A is [2, 3], B is [4, 5] and C is [2, 5]; A needs as many columns as B has rows, "
      "C the rows of A and the columns of B");
  EXPECT_EQ(
      inputErrorOf([&] { accumulate(twoThreads(), a.view(), b.view(), c.view()); }).substr(0, 52),
      "accumulate: A is [2, 3], B is [4, 5] and C is [2, 5]");
  EXPECT_EQ(
      inputErrorOf(
          [&] { gemv(twoThreads(), 1.0f, a.view(), b.view().row(0), 0.0f, c.view().col(0)); }),
      "gemv: A is [2, 3], x has 5 elements and y has 2; A needs a column for each element of x "
      "and a row for each of y");
  EXPECT_EQ(
      inputErrorOf([&] { ger(context, 1.0f, a.view().row(0), b.view().row(0), c.view()); }),
      "ger: A is [2, 5], x has 3 elements and y has 5; A needs a row for each element of x and "
      "a column for each of y");
  EXPECT_TRUE(sameBits(c.storage(), before));
}

}  // namespace
}  // namespace pulsora
