#include "linalg/gemm.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "core/check.h"
#include "util/matrix_test_util.h"

namespace pulsora {
namespace {

using testing::kLayouts;
using testing::Layout;
using testing::sameBits;
using Matrix = testing::LaidOut<float>;

// The definition at `reproducibleGemm`, word for word.
void plainGemm(float alpha, MatrixView<const float> a, MatrixView<const float> b, float beta,
               MatrixView<float> c) {
  for (int64_t i = 0; i < c.rows; ++i) {
    for (int64_t j = 0; j < c.cols; ++j) {
      float acc = 0.0f;
      for (int64_t k = 0; k < a.cols; ++k) acc = std::fmaf(a(i, k), b(k, j), acc);
      c(i, j) = beta == 0.0f ? alpha * acc : std::fmaf(alpha, acc, beta * c(i, j));
    }
  }
}

struct Case {
  int64_t m, n, k;
  Layout a = Layout::RowMajor, b = Layout::RowMajor, c = Layout::RowMajor;
  float alpha = 1.0f, beta = 0.0f;
};

// Compares all of C's storage, gaps included, with the plain loop, on every instruction set.
void expectPlainBits(const Case &t, int threads) {
  Matrix a(t.m, t.k, t.a, 1), b(t.k, t.n, t.b, 2), expected(t.m, t.n, t.c, 3);
  plainGemm(t.alpha, a.view(), b.view(), t.beta, expected.view());
  for (Isa isa : supportedIsas()) {
    Matrix c(t.m, t.n, t.c, 3);
    reproducibleGemm(t.alpha, a.view(), b.view(), t.beta, c.view(), threads, isa);
    EXPECT_TRUE(sameBits(c.storage(), expected.storage()))
        << isaName(isa) << ", threads " << threads << ", [" << t.m << ", " << t.k << "] x [" << t.k
        << ", " << t.n << "], layouts " << int(t.a) << int(t.b) << int(t.c) << ", alpha " << t.alpha
        << ", beta " << t.beta;
  }
}

TEST(ReproducibleGemm, EqualsThePlainLoopForSmallShapes) {
  for (int64_t m : {1, 2, 5, 13, 14, 15, 29, 65}) {
    for (int64_t n : {1, 3, 7, 8, 16, 17, 31, 32, 33, 71}) {
      for (int64_t k : {0, 1, 2, 19}) expectPlainBits({m, n, k}, 1);
    }
  }
}

TEST(ReproducibleGemm, EqualsThePlainLoopAcrossBlockBorders) {
  for (int64_t k : {255, 256, 257, 511, 512, 513, 769}) {
    expectPlainBits({3, 37, k}, 1);
    expectPlainBits({67, 33, k, Layout::ColMajor, Layout::ColMajor, Layout::ColMajor}, 2);
  }
  for (int64_t m : {63, 64, 65, 129}) {
    for (int64_t n : {255, 257, 289}) expectPlainBits({m, n, 11}, 2);
  }
  expectPlainBits({511, 513, 7}, 2);
  expectPlainBits({1, 513, 512}, 2);
  expectPlainBits({513, 1, 512}, 2);
}

TEST(ReproducibleGemm, EqualsThePlainLoopForEveryLayoutAlphaAndBeta) {
  for (Layout a : kLayouts) {
    for (Layout b : kLayouts) {
      for (Layout c : kLayouts) {
        expectPlainBits({23, 45, 37, a, b, c}, 1);
        expectPlainBits({45, 3, 300, a, b, c, -0.3f, 0.7f}, 2);
      }
    }
  }
  for (float alpha : {0.0f, 1.0f, -0.3f}) {
    for (float beta : {0.0f, 1.0f, 0.7f}) {
      for (int64_t k : {0, 5}) {
        expectPlainBits(
            {19, 21, k, Layout::RowMajor, Layout::CutOut, Layout::ColMajor, alpha, beta}, 1);
      }
    }
  }
}

TEST(ReproducibleGemm, ThreadsDoNotChangeBits) {
  for (int threads : {2, 3, 7, 16}) {
    expectPlainBits({64, 130, 300}, threads);
    expectPlainBits({200, 20, 100, Layout::RowMajor, Layout::ColMajor}, threads);
  }
}

TEST(ReproducibleGemm, ARowIsTheSameAloneAndInABatch) {
  Matrix x(64, 300, Layout::RowMajor, 1), w(200, 300, Layout::RowMajor, 2);
  Matrix whole(64, 200, Layout::RowMajor, 3), split(64, 200, Layout::RowMajor, 3);
  for (Isa isa : supportedIsas()) {
    reproducibleGemm(1.0f, x.view(), w.view().transposed(), 0.0f, whole.view(), 2, isa);
    int64_t start = 0;
    for (int64_t rows : {1, 2, 16, 45}) {
      reproducibleGemm(1.0f, x.view().block(start, 0, rows, 300), w.view().transposed(), 0.0f,
                       split.view().block(start, 0, rows, 200), 1, isa);
      start += rows;
    }
    EXPECT_TRUE(sameBits(whole.storage(), split.storage())) << isaName(isa);
  }
}

TEST(ReproducibleGemm, IsWithinTheRoundingBoundOfDoublePrecision) {
  const int64_t m = 20, n = 40, depth = 700;
  Matrix a(m, depth, Layout::RowMajor, 1), b(depth, n, Layout::RowMajor, 2);
  Matrix c(m, n, Layout::RowMajor, 3);
  reproducibleGemm(1.0f, a.view(), b.view(), 0.0f, c.view(), 1, bestIsa());
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double exact = 0.0, magnitude = 0.0;
      for (int64_t k = 0; k < depth; ++k) {
        const double product = double(a.view()(i, k)) * double(b.view()(k, j));
        exact += product;
        magnitude += std::fabs(product);
      }
      const double unit = 0.5 * std::numeric_limits<float>::epsilon();
      EXPECT_LE(std::fabs(double(c.view()(i, j)) - exact), double(depth) * unit * magnitude);
    }
  }
}

TEST(ReproducibleGemm, KeepsSubnormalsAndInfinities) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> a = {tiny, 0.0f, 1.0f, inf}, b = {1.0f, 0.5f, 2.0f, -1.0f}, c(4);
  for (Isa isa : supportedIsas()) {
    reproducibleGemm(1.0f, rowMajor<const float>(a.data(), 2, 2),
                     rowMajor<const float>(b.data(), 2, 2), 0.0f, rowMajor(c.data(), 2, 2), 1, isa);
    // The tie tiny * 0.5 goes to the even neighbour, 0.
    EXPECT_EQ(c, (std::vector<float>{tiny, 0.0f, inf, -inf})) << isaName(isa);
  }
}

TEST(ReproducibleGemm, DoesNotReadCWhenBetaIsZero) {
  std::vector<float> a = {2.0f}, b = {3.0f}, c = {std::numeric_limits<float>::quiet_NaN()};
  reproducibleGemm(1.0f, rowMajor<const float>(a.data(), 1, 1),
                   rowMajor<const float>(b.data(), 1, 1), 0.0f, rowMajor(c.data(), 1, 1), 1,
                   bestIsa());
  EXPECT_EQ(c[0], 6.0f);
}

TEST(ReproducibleGemm, RefusesWhatDoesNotFit) {
  Matrix a(2, 3, Layout::RowMajor, 1), b(4, 5, Layout::RowMajor, 2), c(2, 5, Layout::RowMajor, 3);
  const auto product = [&](MatrixView<float> left, int threads, Isa isa) {
    reproducibleGemm(1.0f, left, b.view(), 0.0f, c.view(), threads, isa);
  };
  EXPECT_THROW(product(a.view(), 1, bestIsa()), InputError);
  Matrix fits(2, 4, Layout::RowMajor, 1);
  EXPECT_NO_THROW(product(fits.view(), 1, bestIsa()));
  EXPECT_THROW(product(fits.view(), 0, bestIsa()), ConfigError);
  for (Isa isa : {Isa::V2, Isa::V3, Isa::V4, Isa::V4Popcnt}) {
    if (isaSupported(isa)) continue;
    EXPECT_THROW(product(fits.view(), 1, isa), ConfigError);
  }
}

TEST(Isa, TheBestIsTheLastOfTheSupported) {
  const std::vector<Isa> isas = supportedIsas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.front(), Isa::V2);
  EXPECT_EQ(isas.back(), bestIsa());
  EXPECT_STREQ(isaName(Isa::V4Popcnt), "V4Popcnt");
}

}  // namespace
}  // namespace pulsora
