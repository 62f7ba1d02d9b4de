#include "linalg/initialise.h"

#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "util/matrix_test_util.h"

namespace pulsora {
namespace {

using testing::inputErrorOf;
using testing::kLayouts;
using testing::LaidOut;
using testing::Layout;
using testing::sameBits;

constexpr RandomKey kKey = {0xC0FFEEU, 0xBEEFU};

// Value `n` of the sequence that drawNormalRows lays down.
float plainNormal(uint64_t number, int64_t n, float deviation) {
  const Philox4 block = draw(kKey, Purpose::Reinit, uint64_t(n / 2), number);
  const NormalPair pair = normalPair(block.v[0], block.v[1]);
  return deviation * (n % 2 == 0 ? pair.z0 : pair.z1);
}

TEST(Initialise, NormalRowsAreTheSequenceRowByRowInEveryLayout) {
  Context context;
  context.cpu.threads = 2;
  for (const Layout layout : kLayouts) {
    for (const int64_t rows : {0, 1, 15, 33}) {
      for (const int64_t cols : {0, 1, 16, 1000}) {
        LaidOut<float> out(rows, cols, layout, 1), expected(rows, cols, layout, 1);
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < cols; ++j)
            expected.view()(i, j) = plainNormal(7, i * cols + j, 0.3f);
        }
        drawNormalRows(context, kKey, 7, 0.3f, out.view());
        ASSERT_TRUE(sameBits(out.storage(), expected.storage())) << rows << " x " << cols;
      }
    }
  }
}

TEST(Initialise, TheDeviationIsGainTimesTheRootOfTwoOverTheFanIn) {
  EXPECT_EQ(kaimingDeviation(2, 1.0f), 1.0f);
  EXPECT_EQ(kaimingDeviation(200, 0.5f), 0.05f);
  EXPECT_EQ(kaimingDeviation(1, 1.0f), float(std::sqrt(2.0)));
  EXPECT_EQ(inputErrorOf([] { kaimingDeviation(0, 1.0f); }),
            "fanIn is 0; it must be at least 1: the number of inputs that an output sums");
}

// Kaiming values in the first rows or columns of a larger matrix; the others stay.
TEST(Initialise, KaimingTakesTheFirstRowsOrColumns) {
  const Context context;
  for (const Layout layout : kLayouts) {
    for (const int64_t count : {0, 1, 5, 12}) {
      LaidOut<float> rows(12, 40, layout, 1), rowsPlain(12, 40, layout, 1);
      LaidOut<float> cols(40, 12, layout, 1), colsPlain(40, 12, layout, 1);
      const float ofRows = kaimingDeviation(40, 0.5f);
      const float ofCols = count > 0 ? kaimingDeviation(count, 0.5f) : 0.0f;
      for (int64_t k = 0; k < count; ++k) {
        for (int64_t i = 0; i < 40; ++i) {
          rowsPlain.view()(k, i) = plainNormal(3, k * 40 + i, ofRows);
          colsPlain.view()(i, k) = plainNormal(3, i * count + k, ofCols);
        }
      }
      kaimingRows(context, kKey, 3, count, 0.5f, rows.view());
      kaimingColumns(context, kKey, 3, count, 0.5f, cols.view());
      ASSERT_TRUE(sameBits(rows.storage(), rowsPlain.storage())) << count;
      ASSERT_TRUE(sameBits(cols.storage(), colsPlain.storage())) << count;
    }
  }
}

TEST(Initialise, KaimingWithItsOwnFanInTakesAnyPart) {
  LaidOut<float> w(20, 30, Layout::CutOut, 1), expected(20, 30, Layout::CutOut, 1);
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t j = 0; j < 7; ++j)
      expected.view()(16 + i, 9 + j) = plainNormal(1, i * 7 + j, kaimingDeviation(50, 1.0f));
  }
  kaimingNormal(Context{}, kKey, 1, 50, 1.0f, w.view().block(16, 9, 4, 7));
  EXPECT_TRUE(sameBits(w.storage(), expected.storage()));
}

TEST(Initialise, KaimingRefusesMoreThanThereIs) {
  LaidOut<float> w(4, 6, Layout::RowMajor, 1);
  const std::vector<float> before = w.storage();
  const Context context;
  EXPECT_EQ(inputErrorOf([&] { kaimingRows(context, kKey, 0, 5, 1.0f, w.view()); }),
            "kaimingRows: count is 5; it must be between 0 and the 4 rows of w");
  EXPECT_EQ(inputErrorOf([&] { kaimingColumns(context, kKey, 0, -1, 1.0f, w.view()); }),
            "kaimingColumns: count is -1; it must be between 0 and the 6 columns of w");
  EXPECT_TRUE(sameBits(w.storage(), before));
}

// Moments of 200 000 values; 5 sigma of the mean and of the variance of normals.
TEST(Initialise, KaimingHasTheMomentsItStates) {
  const int64_t rows = 500, cols = 400;
  LaidOut<float> w(rows, cols, Layout::RowMajor, 1);
  kaimingRows(Context{}, kKey, 2, rows, 0.5f, w.view());
  const double n = double(rows * cols), variance = 0.25 * 2.0 / double(cols);
  double sum = 0.0, square = 0.0;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      const double value = double(w.view()(i, j));
      sum += value;
      square += value * value;
    }
  }
  EXPECT_NEAR(sum / n, 0.0, 5.0 * std::sqrt(variance / n));
  EXPECT_NEAR(square / n / variance, 1.0, 5.0 * std::sqrt(2.0 / n));
}

TEST(Initialise, ZeroWipesTheViewAlone) {
  for (const Layout layout : kLayouts) {
    LaidOut<float> w(6, 9, layout, 1), expected(6, 9, layout, 1);
    w.view()(2, 3) = std::nanf("");
    for (int64_t i = 0; i < 2; ++i) {
      for (int64_t j = 0; j < 3; ++j) expected.view()(1 + i, 2 + j) = 0.0f;
    }
    setZero(Context{}, w.view().block(1, 2, 2, 3));
    EXPECT_TRUE(sameBits(w.storage(), expected.storage()));
  }
}

}  // namespace
}  // namespace pulsora
