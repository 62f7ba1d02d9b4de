#include "numerics/abs_max.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "numerics/abs_max.h"
#include "util/matrix_test_util.h"

namespace pulsora::testing {
namespace {

Context contextOf(Isa isa) {
  Context context;
  context.cpu.isa = isa;
  return context;
}

std::vector<float> numbers(int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(std::sin(static_cast<float>(i * i % 1013)) * static_cast<float>(1 + i % 7));
  return values;
}

// Rows that fill vectors, that do not, and that lie across memory.
TEST(Magnitudes, EqualThoseOfPlainLoopsOnEveryIsa) {
  for (const int64_t cols : {1, 6, 16, 25, 64, 131}) {
    const std::vector<float> values = numbers(9 * cols);
    const auto x = rowMajor<const float>(values.data(), 9, cols);
    const auto across = colMajor<const float>(values.data(), 9, cols);
    for (const auto &view : {MatrixView<const float>(x), MatrixView<const float>(across)}) {
      std::vector<float> expected;
      float largest = 0.0f;
      double products = 0.0;
      for (int64_t i = 0; i < view.rows; ++i) {
        float most = 0.0f;
        for (int64_t j = 0; j < cols; ++j) most = std::max(most, std::fabs(view(i, j)));
        expected.push_back(most);
        largest = std::max(largest, most);
        products += static_cast<double>(most) * static_cast<double>(most);
      }
      for (const Isa isa : supportedIsas()) {
        std::vector<float> rows(9);
        rowAbsMax(contextOf(isa), view, rows.data());
        EXPECT_TRUE(sameBits(rows, expected));
        EXPECT_EQ(absMax(contextOf(isa), view), largest);
        EXPECT_EQ(sumOfAbsMaxProducts(contextOf(isa), view, view), products);
      }
    }
  }
}

TEST(Magnitudes, ValuesThatAreNotFiniteShow) {
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::nanf(""), std::nanf("")}) {
    for (const int64_t at : {int64_t{0}, int64_t{20}, int64_t{74}}) {
      std::vector<float> values = numbers(75);
      std::vector<float> zeros(75, 0.0f);
      values[static_cast<size_t>(at)] = bad;
      const auto x = rowMajor<const float>(values.data(), 3, 25);
      const auto d = rowMajor<const float>(zeros.data(), 3, 25);
      for (const Isa isa : supportedIsas()) {
        EXPECT_FALSE(std::isfinite(absMax(contextOf(isa), x)));
        EXPECT_FALSE(std::isfinite(sumOfAbsMaxProducts(contextOf(isa), x, d)));
        EXPECT_FALSE(std::isfinite(sumOfAbsMaxProducts(contextOf(isa), d, x)));
      }
    }
  }
}

}  // namespace
}  // namespace pulsora::testing
