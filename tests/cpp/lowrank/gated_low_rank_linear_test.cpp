#include <gtest/gtest.h>
#include <vector>

#include "lowrank/low_rank_test_util.h"

namespace pulsora {
namespace {

using testing::Exact;
using testing::inputErrorOf;
using testing::isNear;
using testing::kLayouts;
using testing::LaidOut;
using testing::Layout;
using testing::layoutOf;
using testing::Linear;
using testing::sameBits;
using testing::Shape;
using testing::toleranceOf;

template <class T>
class GatedLowRankLinearOf : public ::testing::Test {};
using Elements = ::testing::Types<float, Half, BFloat16>;
TYPED_TEST_SUITE(GatedLowRankLinearOf, Elements);

const Shape kShapes[] = {{128, 64, 8, 72}, {1, 16, 8, 16}, {33, 17, 5, 40}, {300, 70, 16, 33},
                         {5, 1, 1, 1},     {3, 8, 0, 4},   {4, 0, 3, 5},    {0, 8, 3, 5}};

TYPED_TEST(GatedLowRankLinearOf, Property45_IsTheFormulaInDoublePrecision) {
  using T = TypeParam;
  int64_t index = 0;
  for (const Shape &shape : kShapes) {
    for (const Layout layout : kLayouts) {
      ++index;
      const Linear<T> layer(shape, layout, layoutOf(index), static_cast<unsigned>(index));
      LaidOut<T> y(shape.m, shape.k2, layoutOf(index / 2), 1);
      gatedLowRankLinear({}, layer.update.operands(), layer.weight.view(), layer.bias.view(),
                         y.view());
      EXPECT_TRUE(isNear<T>(layer.reference(true), y.view(), toleranceOf<T>())) << shape;
      gatedLowRankLinear({}, layer.update.operands(), layer.weight.view(), {}, y.view());
      EXPECT_TRUE(isNear<T>(layer.reference(false), y.view(), toleranceOf<T>())) << shape;
      EXPECT_FALSE(
          gatedLowRankLinearPays({}, layer.update.operands(), layer.weight.view(), {}, y.view()));
    }
  }
}

TYPED_TEST(GatedLowRankLinearOf, Property37_ThreadsAndInstructionSetChangeNoBit) {
  using T = TypeParam;
  const Shape shape{900, 130, 8, 70};
  const Linear<T> layer(shape, Layout::RowMajor, Layout::RowMajor, 7);
  const auto run = [&](Isa isa, int threads) {
    Context context;
    context.cpu.isa = isa;
    context.cpu.threads = threads;
    LaidOut<T> y(shape.m, shape.k2, Layout::RowMajor, 1);
    gatedLowRankLinear(context, layer.update.operands(), layer.weight.view(), layer.bias.view(),
                       y.view());
    return testing::bytesOf(y);
  };
  const auto first = run(Isa::V2, 1);
  for (const Isa isa : supportedIsas()) {
    for (const int threads : {1, 2, 3}) EXPECT_TRUE(run(isa, threads) == first) << isaName(isa);
  }
}

TEST(GatedLowRankLinear, ErrorsNameTheOperandAndChangeNothing) {
  const Linear<float> good({4, 6, 3, 5}, Layout::RowMajor, Layout::RowMajor, 1);
  LaidOut<float> y(4, 5, Layout::RowMajor, 2);
  const std::vector<float> before = y.storage();
  const LaidOut<float> wrong(9, 9, Layout::RowMajor, 3);
  const LaidOut<Half> half(5, 6, Layout::RowMajor, 3);
  const auto errorOf = [&](ConstAnyMatrix weight, ConstAnyMatrix bias) {
    return inputErrorOf(
        [&] { gatedLowRankLinear({}, good.update.operands(), weight, bias, y.view()); });
  };
  EXPECT_NE(errorOf(wrong.view(), {}).find("weight is [9, 9]"), std::string::npos);
  EXPECT_NE(errorOf(half.view(), {}).find("weight holds float16"), std::string::npos);
  EXPECT_NE(errorOf(good.weight.view(), wrong.view()).find("bias is [9, 9]"), std::string::npos);
  EXPECT_TRUE(sameBits(y.storage(), before));
}

}  // namespace
}  // namespace pulsora
