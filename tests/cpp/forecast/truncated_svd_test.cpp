#include "forecast/truncated_svd.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "core/check.h"
#include "forecast/small_matrix.h"
#include "linalg/initialise.h"
#include "numerics/random.h"

namespace pulsora {
namespace {

using Floats = std::vector<float>;

struct Matrix {
  int64_t rows, cols;
  Floats values;

  MatrixView<const float> view() const { return rowMajor(values.data(), rows, cols); }
  double operator()(int64_t i, int64_t j) const {
    return values[static_cast<size_t>(i * cols + j)];
  }
};

struct Svd {
  Matrix u, v;
  Floats s;
  int info;

  Svd(const Matrix &a, int64_t k, const SvdOptions &options, int threads = 1)
      : u{a.rows, k, Floats(static_cast<size_t>(a.rows * k))},
        v{k, a.cols, Floats(static_cast<size_t>(k * a.cols))},
        s(static_cast<size_t>(k)) {
    Context context;
    context.cpu.threads = threads;
    info = truncatedSvd(context, a.view(), k, options, rowMajor(u.values.data(), a.rows, k),
                        s.data(), rowMajor(v.values.data(), k, a.cols));
  }
  int64_t k() const { return static_cast<int64_t>(s.size()); }
  double orthogonality() const {
    double worst = 0.0;
    for (int64_t p = 0; p < k(); ++p) {
      for (int64_t q = 0; q < k(); ++q) {
        double inU = p == q ? -1.0 : 0.0;
        double inV = inU;
        for (int64_t i = 0; i < u.rows; ++i) inU += u(i, p) * u(i, q);
        for (int64_t j = 0; j < v.cols; ++j) inV += v(p, j) * v(q, j);
        worst = std::max({worst, std::abs(inU), std::abs(inV)});
      }
    }
    return worst;
  }
  double error(const Matrix &a) const {
    double sum = 0.0;
    for (int64_t i = 0; i < a.rows; ++i) {
      for (int64_t j = 0; j < a.cols; ++j) {
        double rest = a(i, j);
        for (int64_t p = 0; p < k(); ++p)
          rest -= u(i, p) * double{s[static_cast<size_t>(p)]} * v(p, j);
        sum += rest * rest;
      }
    }
    return std::sqrt(sum);
  }
};

Matrix noise(int64_t rows, int64_t cols, uint64_t seed) {
  Matrix a{rows, cols, Floats(static_cast<size_t>(rows * cols))};
  drawNormalRows({}, makeKey(seed, 1, 2), 0, 1.0f, rowMajor(a.values.data(), rows, cols));
  return a;
}

/// U diag(s) V with random orthonormal factors of full size.
Matrix withSpectrum(int64_t rows, int64_t cols, const std::vector<double> &s, uint64_t seed) {
  const int64_t count = static_cast<int64_t>(s.size());
  const auto basis = [&](int64_t size, uint64_t own) {
    const Matrix random = noise(count, size, own);
    SmallMatrix made(random.values.begin(), random.values.end());
    orthonormaliseRows(count, size, made);
    return made;
  };
  const SmallMatrix left = basis(rows, seed);
  const SmallMatrix right = basis(cols, seed + 1);
  Matrix a{rows, cols, Floats(static_cast<size_t>(rows * cols))};
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      double sum = 0.0;
      for (int64_t p = 0; p < count; ++p) {
        const auto at = [&](const SmallMatrix &m, int64_t size, int64_t place) {
          return m[static_cast<size_t>(p * size + place)];
        };
        sum += s[static_cast<size_t>(p)] * at(left, rows, i) * at(right, cols, j);
      }
      a.values[static_cast<size_t>(i * cols + j)] = static_cast<float>(sum);
    }
  }
  return a;
}

double tail(const std::vector<double> &s, int64_t k) {
  double sum = 0.0;
  for (size_t i = static_cast<size_t>(k); i < s.size(); ++i) sum += s[i] * s[i];
  return std::sqrt(sum);
}

constexpr SvdMethod kMethods[] = {SvdMethod::Randomised, SvdMethod::Gram, SvdMethod::Exact};

TEST(TruncatedSvd, TheWorkedExample) {
  const Matrix a{3, 2, {3, 0, 4, 5, 0, 0}};
  for (const SvdMethod method : kMethods) {
    const Svd got(a, 2, {method});
    EXPECT_NEAR(got.s[0], std::sqrt(45.0), 1e-6);
    EXPECT_NEAR(got.s[1], std::sqrt(5.0), 1e-6);
    const double half = std::sqrt(0.5);
    const Floats u = {.3162277660f, .9486832981f, .9486832981f, -.3162277660f, 0, 0};
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(got.u.values[i], u[i], 1e-6) << i;
    EXPECT_NEAR(got.v(0, 0), half, 1e-6);
    EXPECT_NEAR(got.v(0, 1), half, 1e-6);
    EXPECT_NEAR(got.v(1, 0), half, 1e-6);  // a tie: the first element decides
    EXPECT_NEAR(got.v(1, 1), -half, 1e-6);
    EXPECT_NEAR(Svd(a, 1, {method}).error(a), std::sqrt(5.0), 1e-5);
  }
}

TEST(TruncatedSvd, IsNearlyOptimal) {
  constexpr int64_t kSize = 48;
  std::vector<double> slow, fast, square;
  for (int64_t i = 1; i <= kSize; ++i) {
    slow.push_back(1.0 / std::sqrt(static_cast<double>(i)));
    fast.push_back(std::pow(0.7, static_cast<double>(i)));
    square.push_back(1.0 / static_cast<double>(i * i));
  }
  for (const auto &spectrum : {slow, fast, square}) {
    for (const auto &[rows, cols] : {std::pair<int64_t, int64_t>{90, 70}, {60, 130}}) {
      const Matrix a = withSpectrum(rows, cols, spectrum, 3);
      for (const SvdMethod method : kMethods) {
        if (method == SvdMethod::Gram && std::min(rows, cols) > kMostGramLines) continue;
        const Svd got(a, 8, {method});
        EXPECT_LE(got.error(a), 1.001 * tail(spectrum, 8) + 1e-6);
        EXPECT_LE(got.orthogonality(), 1e-5);
        for (int64_t i = 0; i < 8; ++i) {
          const double expected = spectrum[static_cast<size_t>(i)];
          EXPECT_NEAR(got.s[static_cast<size_t>(i)], expected, 1e-3 * expected + 1e-6);
        }
      }
    }
  }
}

TEST(TruncatedSvd, NoiseNeedsThePowerSteps) {
  const Matrix a = noise(200, 160, 7);
  const double optimum = Svd(a, 8, {SvdMethod::Exact}).error(a);
  const double none = Svd(a, 8, {SvdMethod::Randomised, 16, 0}).error(a);
  const double four = Svd(a, 8, {SvdMethod::Randomised, 16, 4}).error(a);
  const double many = Svd(a, 8, {SvdMethod::Randomised, 16, 16}).error(a);
  EXPECT_GT(none, 1.01 * optimum);
  EXPECT_LT(four, 1.004 * optimum);
  EXPECT_LT(many, 1.001 * optimum);
}

TEST(TruncatedSvd, RankDeficientMatricesAreCompleted) {
  const Matrix a = withSpectrum(40, 30, {5.0, 2.0, 1.0}, 9);
  for (const SvdMethod method : kMethods) {
    const Svd got(a, 6, {method});
    EXPECT_NEAR(got.s[2], 1.0, 1e-5);
    for (size_t i = 3; i < 6; ++i) EXPECT_EQ(got.s[i], 0.0f);
    EXPECT_LE(got.orthogonality(), 1e-5);
    EXPECT_LE(got.error(a), 1e-5);
  }
}

TEST(TruncatedSvd, ZeroGivesUnitVectors) {
  const Matrix a{5, 4, Floats(20)};
  for (const SvdMethod method : kMethods) {
    const Svd got(a, 3, {method});
    EXPECT_EQ(got.info, 0);
    for (int64_t p = 0; p < 3; ++p) {
      EXPECT_EQ(got.s[static_cast<size_t>(p)], 0.0f);
      for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(got.u(i, p), i == p ? 1.0 : 0.0);
      for (int64_t j = 0; j < 4; ++j) EXPECT_EQ(got.v(p, j), j == p ? 1.0 : 0.0);
    }
  }
}

TEST(TruncatedSvd, WhatIsNotFiniteGivesNan) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Matrix a = noise(6, 5, 1);
    a.values[7] = bad;
    for (const SvdMethod method : kMethods) {
      const Svd got(a, 2, {method});
      EXPECT_EQ(got.info, 1);
      for (const Floats *values : {&got.s, &got.u.values, &got.v.values}) {
        for (const float value : *values) EXPECT_TRUE(std::isnan(value));
      }
    }
  }
}

TEST(TruncatedSvd, BitsDependOnTheSeedAndNotOnThreads) {
  const Matrix a = noise(300, 200, 3);
  const Svd one(a, 5, {});
  const Svd four(a, 5, {}, 4);
  EXPECT_EQ(one.u.values, four.u.values);
  EXPECT_EQ(one.s, four.s);
  EXPECT_EQ(one.v.values, four.v.values);
  SvdOptions other;
  other.seed = 1;
  EXPECT_NE(one.v.values, Svd(a, 5, other).v.values);
}

TEST(TruncatedSvd, SizesOutOfRangeAreRefused) {
  const Matrix a = noise(5, 4, 1);
  EXPECT_THROW(Svd(a, 5, {}), InputError);
  EXPECT_THROW(Svd(a, 0, {}), InputError);
  EXPECT_THROW(Svd(a, 2, {SvdMethod::Randomised, -1}), InputError);
  EXPECT_THROW(Svd(noise(65, 65, 1), 2, {SvdMethod::Gram}), InputError);
  const Svd all(a, 4, {});  // the subspace is the whole space
  EXPECT_LE(all.error(a), 1e-5);
}

TEST(SmallMatrix, CompletionFindsWhatIsSpreadOverManyUnitVectors) {
  constexpr int64_t kSize = 50;
  // All but the direction of (1, ..., 1), of which every unit vector has 0.14.
  SmallMatrix a(kSize * kSize);
  for (int64_t i = 0; i + 1 < kSize; ++i) {
    for (int64_t j = 0; j <= i + 1; ++j) {
      a[static_cast<size_t>(i * kSize + j)] = j <= i ? 1.0 : -static_cast<double>(i + 1);
    }
  }
  orthonormaliseRows(kSize - 1, kSize, a);
  completeRows(kSize - 1, kSize, kSize, a);
  for (int64_t j = 0; j < kSize; ++j) {
    EXPECT_NEAR(a[static_cast<size_t>((kSize - 1) * kSize + j)], 1.0 / std::sqrt(50.0), 1e-12);
  }
}

}  // namespace
}  // namespace pulsora
