#include "inference/modify_weights.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <vector>

#include "core/check.h"
#include "core/isa_dispatch.h"

namespace pulsora {
namespace {

struct Case {
  int64_t rows;
  int64_t cols;
  std::vector<float> weights, made, scale, largest, to;
  WeightModifier modifier{};

  Case(int64_t outputs, int64_t inputs, Modifier rule, int variant) : rows(outputs), cols(inputs) {
    const auto cells = static_cast<size_t>(rows * cols);
    for (size_t i = 0; i < cells; ++i) {
      weights.push_back(std::sin(0.37f * static_cast<float>(i)));
      made.push_back(std::cos(0.11f * static_cast<float>(i)));
    }
    for (int64_t i = 0; i < rows; ++i) {
      scale.push_back(i == 1 ? 0.0f : 0.3f + 0.1f * static_cast<float>(i));  // a row of zeros, too
      largest.push_back(i == 1 ? 0.0f : 0.2f + 0.1f * static_cast<float>(i));
    }
    to.assign(cells + 1, 7.0f);
    FloatList coefficients;
    coefficients.values[0] = 0.3f;
    coefficients.values[1] = 0.9f;
    coefficients.values[2] = -0.4f;
    coefficients.count = 3;
    modifier.rule = {rule, 0.1f,         0.05f, (variant & 1) != 0,
                     0.8f, coefficients, 1.5f,  (variant & 2) != 0 ? 0.2f : 0.0f};
    modifier.key = makeKey(4, 5, 6);
    modifier.number = (uint64_t{1} << 33) + 5;
    modifier.weights = weights.data();
    modifier.made = rule == Modifier::NoiseModel ? made.data() : nullptr;
    modifier.scale = scale.data();
    modifier.largest = largest.data();
    modifier.cells = rows * cols;
    modifier.cols = cols;
    modifier.to = to.data();
  }
  int64_t groups() const { return (rows * cols + 7) / 8; }
};

TEST(ModifyWeights, HasTheBitsOfTheFunctorOnEveryInstructionSet) {
  for (int rule = 0; rule <= static_cast<int>(Modifier::NoiseModel); ++rule) {
    for (int variant = 0; variant < 4; ++variant) {
      for (const auto &[rows, cols] : {std::pair<int64_t, int64_t>{3, 5}, {9, 25}, {7, 300}}) {
        Case plain(rows, cols, static_cast<Modifier>(rule), variant);
        for (int64_t group = 0; group < plain.groups(); ++group) plain.modifier(group);
        for (const Isa isa : supportedIsas()) {
          const auto kernel = withIsa(isa, [](auto i) { return &modifyGroups<i>; });
          Case fast(rows, cols, static_cast<Modifier>(rule), variant);
          const int64_t cut = fast.groups() / 3;  // threads divide the groups anywhere
          kernel(fast.modifier, 0, cut);
          kernel(fast.modifier, cut, fast.groups());
          ASSERT_EQ(fast.to.size(), plain.to.size());
          EXPECT_EQ(std::memcmp(fast.to.data(), plain.to.data(), 4 * plain.to.size()), 0)
              << message("rule ", rule, ", variant ", variant, ", columns ", cols, ", ",
                         isaName(isa));
        }
      }
    }
  }
}

}  // namespace
}  // namespace pulsora
