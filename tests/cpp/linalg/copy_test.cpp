#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "linalg/math_util.h"
#include "util/matrix_test_util.h"

namespace pulsora {
namespace {

using testing::inputErrorOf;
using testing::kLayouts;
using testing::kSizes;
using testing::LaidOut;
using testing::Layout;
using testing::sameBits;

Context onThreads(int threads) {
  Context context;
  context.cpu.threads = threads;
  return context;
}

// The definition of a conversion, for values that every type but the smaller ones can hold exactly.
double valueOf(Half half) { return double(halfToFloat(half.bits)); }
template <class T>
double valueOf(T value) {
  return double(value);
}
template <class T>
T fromValue(double value) {
  if constexpr (std::is_same_v<T, Half>) {
    return {floatToHalf(float(value))};
  } else {
    return T(value);
  }
}

template <class Src, class Dst>
void expectConversion() {
  for (const Layout from : kLayouts) {
    for (const Layout to : kLayouts) {
      for (const int64_t rows : {1, 17, 33}) {
        for (const int64_t cols : {1, 16, 71}) {
          const LaidOut<Src> source(rows, cols, from, 1);
          LaidOut<Dst> target(rows, cols, to, 2), expected(rows, cols, to, 2);
          for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < cols; ++j)
              expected.view()(i, j) = fromValue<Dst>(valueOf(source.view()(i, j)));
          }
          elemcopy(onThreads(2), source.view(), target.view());
          ASSERT_TRUE(sameBits(target.storage(), expected.storage()))
              << rows << " x " << cols << ", layouts " << int(from) << int(to);
        }
      }
    }
  }
}

TEST(Elemcopy, ConvertsEveryPairOfTypesInEveryLayout) {
  expectConversion<float, float>();
  expectConversion<float, double>();
  expectConversion<float, Half>();
  expectConversion<float, int32_t>();
  expectConversion<float, int64_t>();
  expectConversion<float, uint8_t>();
  expectConversion<double, float>();
  expectConversion<Half, float>();
  expectConversion<int32_t, float>();
  expectConversion<int64_t, float>();
  expectConversion<uint8_t, float>();
  expectConversion<double, double>();
  expectConversion<Half, Half>();
  expectConversion<int32_t, int32_t>();
  expectConversion<int64_t, int64_t>();
  expectConversion<uint8_t, uint8_t>();
}

TEST(Elemcopy, RoundsToTheNearestAndTruncatesIntegers) {
  const std::vector<double> fine = {1.0 + 0x1p-24, 1.0 + 0x3p-24, 0.1, -1e300};
  std::vector<float> rounded(4);
  elemcopy(Context{}, rowMajor(fine.data(), 2, 2), rowMajor(rounded.data(), 2, 2));
  EXPECT_EQ(rounded, (std::vector<float>{1.0f, 1.0f + 0x1p-22f, 0.1f,
                                         -std::numeric_limits<float>::infinity()}));
  const std::vector<float> values = {2.9f, -2.9f, 0.0f, 0x1p30f};
  std::vector<int32_t> whole(4);
  elemcopy(Context{}, rowMajor(values.data(), 2, 2), rowMajor(whole.data(), 2, 2));
  EXPECT_EQ(whole, (std::vector<int32_t>{2, -2, 0, 1 << 30}));
  const std::vector<int64_t> wide = {(int64_t{1} << 24) + 1, (int64_t{1} << 24) + 3, -7, 0};
  elemcopy(Context{}, rowMajor(wide.data(), 2, 2), rowMajor(rounded.data(), 2, 2));
  EXPECT_EQ(rounded, (std::vector<float>{0x1p24f, 0x1p24f + 4.0f, -7.0f, 0.0f}));
  const std::vector<float> large = {1e6f, -1e6f, 1.0f + 0x1p-11f, 0x1p-25f};
  std::vector<Half> halves(4);
  elemcopy(Context{}, rowMajor(large.data(), 2, 2), rowMajor(halves.data(), 2, 2));
  elemcopy(Context{}, rowMajor(halves.data(), 2, 2), rowMajor(rounded.data(), 2, 2));
  EXPECT_EQ(rounded, (std::vector<float>{kHalfMax, -kHalfMax, 1.0f, 0.0f}));
}

TEST(Copy, IsExactForEveryShapeLayoutAndThreadCount) {
  for (const int64_t rows : kSizes) {
    for (const int64_t cols : kSizes) {
      if (rows == 1000 && cols == 1000) continue;
      for (const Layout from : kLayouts) {
        for (const Layout to : kLayouts) {
          LaidOut<float> source(rows, cols, from, 1);
          if (source.view().size() > 0) source.view()(0, 0) = -std::nanf("17");
          LaidOut<float> target(rows, cols, to, 2), expected(rows, cols, to, 2);
          for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < cols; ++j) expected.view()(i, j) = source.view()(i, j);
          }
          copy(onThreads(rows % 2 ? 1 : 3), source.view(), target.view());
          ASSERT_TRUE(sameBits(target.storage(), expected.storage()))
              << rows << " x " << cols << ", layouts " << int(from) << int(to);
        }
      }
    }
  }
}

TEST(Copy, RepeatsASourceWithoutStrides) {
  const float value = 0.7f;
  std::vector<float> target(6);
  copy(Context{}, MatrixView<const float>(&value, 2, 3, 0, 0), rowMajor(target.data(), 2, 3));
  EXPECT_EQ(target, std::vector<float>(6, 0.7f));
  const std::vector<float> row = {1, 2, 3};
  copy(Context{}, MatrixView<const float>(row.data(), 2, 3, 0, 1), colMajor(target.data(), 2, 3));
  EXPECT_EQ(target, (std::vector<float>{1, 1, 2, 2, 3, 3}));
}

TEST(Copy, RefusesOtherShapes) {
  std::vector<float> from(6, 1.0f), to(6);
  EXPECT_EQ(inputErrorOf(
                [&] { copy(Context{}, rowMajor(from.data(), 2, 3), rowMajor(to.data(), 3, 2)); }),
            "copy: from is [2, 3] and to is [3, 2]; both need the same shape");
  EXPECT_EQ(to, std::vector<float>(6));
}

TEST(Transpose, ExchangesRowsAndColumnsOfAnyLayouts) {
  for (const int64_t rows : kSizes) {
    for (const int64_t cols : {0, 1, 15, 33, 100}) {
      for (const Layout from : kLayouts) {
        for (const Layout to : kLayouts) {
          const LaidOut<float> source(rows, cols, from, 1);
          LaidOut<float> target(cols, rows, to, 2), expected(cols, rows, to, 2);
          for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < cols; ++j) expected.view()(j, i) = source.view()(i, j);
          }
          transpose(onThreads(2), source.view(), target.view());
          ASSERT_TRUE(sameBits(target.storage(), expected.storage()))
              << rows << " x " << cols << ", layouts " << int(from) << int(to);
        }
      }
    }
  }
}

TEST(Transpose, RefusesOtherShapes) {
  std::vector<float> from(6), to(6);
  EXPECT_EQ(inputErrorOf([&] {
              transpose(Context{}, rowMajor(from.data(), 2, 3), rowMajor(to.data(), 2, 3));
            }),
            "transpose: from is [2, 3] and to is [2, 3]; to needs the columns of from as its rows, "
            "and the rows as its columns");
}

}  // namespace
}  // namespace pulsora
