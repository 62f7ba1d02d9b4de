#include "linalg/integer_product.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "numerics/random.h"

namespace pulsora {
namespace {

constexpr double kBound = 0.7;

/// A product of integers with everything that it needs.
struct Problem {
  int64_t rows, depth, lines;
  int32_t level;
  IntegerWeights integers;
  bool transposed = false;  // weights are stored input by input
  std::vector<int16_t> levels;
  std::vector<float> weights;

  Problem(int64_t rows_, int64_t depth_, int64_t lines_, int32_t level_, int bits,
          bool transposed_ = false)
      : rows(rows_),
        depth(depth_),
        lines(lines_),
        level(level_),
        integers(integerWeights(bits, kBound)),
        transposed(transposed_) {
    const RandomKey key = makeKey(5, static_cast<uint32_t>(depth), static_cast<uint32_t>(lines));
    for (int64_t i = 0; i <= rows * depth; ++i) {  // one more than there are
      const uint32_t word = draw(key, Purpose::UserDraw, static_cast<uint64_t>(i), 0).v[0];
      levels.push_back(
          static_cast<int16_t>(static_cast<int32_t>(word >> 8) % (2 * level + 1) - level));
    }
    for (int64_t i = 0; i < lines * depth; ++i) {
      const uint32_t word = draw(key, Purpose::UserDraw, static_cast<uint64_t>(i), 1).v[0];
      weights.push_back(static_cast<float>(kBound) * (2.0f * uniform(word) - 1.0f));
    }
    // The largest weights and levels are there too.
    if (!weights.empty()) weights[0] = -(weights.back() = static_cast<float>(kBound));
    levels[0] = static_cast<int16_t>(-level);
  }

  MatrixView<const float> weightView() const {
    return transposed ? rowMajor(weights.data(), depth, lines).transposed()
                      : rowMajor(weights.data(), lines, depth);
  }
  MatrixView<const int16_t> levelView() const { return rowMajor(levels.data(), rows, depth); }
  /// The definition, in 128 bits.
  std::vector<float> expected(float unit) const {
    std::vector<float> out;
    const auto w = weightView();
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < lines; ++i) {
        __int128 sum = 0;
        for (int64_t k = 0; k < depth; ++k) {
          const double scaled = std::ldexp(double(w(i, k)), integers.bits - 1);  // e is 0
          sum += static_cast<__int128>(std::llrint(scaled)) * levelView()(r, k);
        }
        out.push_back(static_cast<float>(static_cast<int64_t>(sum)) * unit);
      }
    }
    return out;
  }
  std::vector<float> found(float unit, int threads, Isa isa) const {
    std::vector<float> out(static_cast<size_t>(rows * lines), kNaN);
    integerProduct(levelView(), level, weightView(), integers, unit,
                   rowMajor(out.data(), rows, lines), threads, isa);
    return out;
  }
};

void expectExact(const Problem &p) {
  constexpr float kUnit = 0x1.8p-20f;
  const std::vector<float> expected = p.expected(kUnit);
  for (Isa isa : supportedIsas()) {
    for (int threads : {1, 3}) {
      const std::vector<float> found = p.found(kUnit, threads, isa);
      EXPECT_EQ(std::memcmp(found.data(), expected.data(), expected.size() * sizeof(float)), 0)
          << isaName(isa) << ", " << threads << " threads, " << p.rows << " x " << p.depth << " -> "
          << p.lines << ", levels " << p.level << ", bits " << p.integers.bits << p.transposed;
    }
  }
}

TEST(IntegerProduct, Property37_EqualsTheSumInIntegersForAllShapesAndInstructionSets) {
  for (int bits : {24, 16}) {
    for (bool transposed : {false, true}) {
      for (int64_t rows : {1, 2, 5, 7, 14, 15, 29})
        for (int64_t lines : {1, 3, 8, 17})
          for (int64_t depth : {0, 1, 2, 19})
            expectExact({rows, depth, lines, 63, bits, transposed});
      for (int64_t depth : {255, 256, 257, 770}) expectExact({9, depth, 33, 63, bits, transposed});
      expectExact({270, 40, 300, 63, bits, transposed});
      // Few rows take loops of their own.
      for (int64_t rows : {1, 2, 3, 4, 6, 8}) {
        for (int64_t depth : {64, 67, 512}) expectExact({rows, depth, 48, 127, bits, transposed});
        expectExact({rows, 1100, 523, 63, bits, transposed});
      }
      expectExact({3, 4101, 19, 63, bits, transposed});
    }
  }
}

TEST(IntegerProduct, IsExactForFineConverters) {
  for (int bits : {24, 16})
    for (int32_t level : {1, 127, 255, 256, 1000, 4095, 4096, kLargestLevel}) {
      for (int64_t rows : {3, 11}) {
        expectExact({rows, 301, 9, level, bits});
        expectExact({rows, 301, 32, level, bits, true});
      }
    }
}

TEST(IntegerProduct, IsExactUpToTheLongestRows) {
  for (int bits : {24, 16}) {
    for (int32_t level : {63, kLargestLevel}) {
      const IntegerWeights integers = integerWeights(bits, 1.0);
      const int64_t depth = level == 63 ? 200001 : (int64_t{1} << 30) / (level + 1) - 1;
      ASSERT_TRUE(areExact(integers, depth, level));
      const std::vector<int16_t> levels(static_cast<size_t>(depth) + 1,
                                        static_cast<int16_t>(-level));
      const std::vector<float> weights(static_cast<size_t>(depth), 1.0f);
      const int64_t v = std::llrint(double(integers.scale));
      for (Isa isa : supportedIsas()) {
        float out = 0.0f;
        integerProduct(rowMajor(levels.data(), 1, depth), level, rowMajor(weights.data(), 1, depth),
                       integers, 1.0f, rowMajor(&out, 1, 1), 1, isa);
        EXPECT_EQ(out, static_cast<float>(-v * level * depth)) << isaName(isa);
      }
    }
  }
  EXPECT_FALSE(areExact(integerWeights(24, 1.0), (int64_t{1} << 30) / 63 + 1, 63));
}

TEST(IntegerProduct, SaturatesWeightsBeyondTheBound) {
  for (int bits : {24, 16}) {
    for (bool transposed : {false, true}) {
      for (int64_t rows : {1, 4, 8, 20}) {
        for (float beyond : {1.0f, -1.0f, 1.5f, -300.0f, 3e38f, -3e38f, kNaN}) {
          Problem p(rows, 130, 40, 63, bits, transposed);
          const float largest = p.integers.largest * p.integers.step;
          p.weights[2613] = beyond > largest ? largest : -largest;
          const std::vector<float> expected = p.expected(1.0f);
          p.weights[2613] = beyond;
          for (Isa isa : supportedIsas())
            EXPECT_EQ(p.found(1.0f, 1, isa), expected)
                << isaName(isa) << ", " << rows << " rows, " << beyond << ", bits " << bits;
        }
      }
    }
  }
}

TEST(IntegerWeights, UseAllBitsAndNeverMore) {
  for (int bits : {16, 24}) {
    const double most = std::ldexp(1.0, bits - 1) - 1.0;
    for (double bound : {1e-15, 0.3, 0.5, 0.6, 0.99999997, 1.0, 1.0 - 0x1p-20, 1.7, 3e20}) {
      const IntegerWeights i = integerWeights(bits, bound);
      ASSERT_TRUE(i.exist());
      EXPECT_EQ(double(i.scale) * double(i.step), 1.0);
      const double v = std::nearbyint(bound * double(i.scale));
      EXPECT_LE(v, most) << bound;
      EXPECT_GT(std::nearbyint(2.0 * bound * double(i.scale)), most) << bound;
      EXPECT_EQ(integerOf(i, static_cast<float>(bound)),
                std::nearbyint(double(static_cast<float>(bound)) * double(i.scale)));
      EXPECT_EQ(integerOf(i, static_cast<float>(4.0 * bound)), most);
      EXPECT_EQ(integerOf(i, static_cast<float>(-4.0 * bound)), -most);
      EXPECT_EQ(integerOf(i, kNaN), -most);
    }
    EXPECT_TRUE(integerWeights(bits, 0.0).exist());
    EXPECT_FALSE(integerWeights(bits, std::numeric_limits<double>::infinity()).exist());
    EXPECT_FALSE(integerWeights(bits, 1e30).exist());
  }
}

}  // namespace
}  // namespace pulsora
