#include "lowrank/gated_low_rank.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "lowrank/low_rank_test_util.h"

namespace pulsora {
namespace {

using testing::Gradients;
using testing::inputErrorOf;
using testing::isNear;
using testing::kLayouts;
using testing::LaidOut;
using testing::Layout;
using testing::layoutOf;
using testing::referenceOf;
using testing::sameBits;
using testing::Shape;
using testing::toleranceOf;
using testing::Update;

template <class T>
class GatedLowRankOf : public ::testing::Test {};
using Elements = ::testing::Types<float, Half, BFloat16>;
TYPED_TEST_SUITE(GatedLowRankOf, Elements);

const Shape kShapes[] = {{128, 256, 8, 256}, {1, 16, 8, 16},   {33, 17, 5, 40}, {300, 70, 16, 33},
                         {5, 1, 1, 1},       {700, 24, 64, 9}, {3, 8, 0, 4},    {4, 0, 3, 5}};

TYPED_TEST(GatedLowRankOf, Property45_IsTheFormulaInDoublePrecision) {
  using T = TypeParam;
  const Context context;
  int64_t index = 0;
  for (const Shape &shape : kShapes) {
    for (const Layout layout : kLayouts) {
      ++index;
      Update<T> update(shape, layout, layoutOf(index), static_cast<unsigned>(index));
      LaidOut<T> y(shape.m, shape.k2, layoutOf(index / 2), 1);
      const LaidOut<T> base(shape.m, shape.k2, layoutOf(index / 3), 2);
      gatedLowRank(context, update.operands(), {}, y.view());
      const auto reference = referenceOf(update);
      EXPECT_TRUE(isNear<T>(reference.y, y.view(), toleranceOf<T>())) << shape;
      gatedLowRank(context, update.operands(), base.view(), y.view());
      EXPECT_TRUE(isNear<T>(reference.plus(base.view()), y.view(), toleranceOf<T>())) << shape;
      LaidOut<T> inPlace(base.view(), Layout::RowMajor);
      gatedLowRank(context, update.operands(), inPlace.view(), inPlace.view());
      for (int64_t i = 0; i < shape.m; ++i) {
        for (int64_t j = 0; j < shape.k2; ++j)
          ASSERT_EQ(widen(inPlace.view()(i, j)), widen(y.view()(i, j))) << shape;
      }
    }
  }
}

TYPED_TEST(GatedLowRankOf, Property46_GradientsAreThoseOfDoublePrecision) {
  using T = TypeParam;
  const Context context;
  int64_t index = 0;
  for (const Shape &shape : kShapes) {
    for (const Layout layout : kLayouts) {
      ++index;
      Update<T> update(shape, layout, layoutOf(index), static_cast<unsigned>(index));
      const LaidOut<T> dy(shape.m, shape.k2, layoutOf(index / 2), 3);
      Gradients<T> all(shape, layout);
      gatedLowRankBackward(context, update.operands(), dy.view(), all.targets());
      const auto reference = referenceOf(update, dy.view());
      EXPECT_TRUE(isNear<T>(reference.dx, all.x.view(), toleranceOf<T>())) << shape;
      EXPECT_TRUE(isNear<T>(reference.dv, all.v.view(), toleranceOf<T>())) << shape;
      EXPECT_TRUE(isNear<T>(reference.du, all.u.view(), toleranceOf<T>())) << shape;
      EXPECT_TRUE(isNear<float>(reference.dcodes, all.codes.view(), toleranceOf<T>())) << shape;
      // A gradient alone has the bits that it has among all.
      for (int only = 0; only < 4; ++only) {
        Gradients<T> one(shape, layout);
        GatedGradients wanted;
        if (only == 0) wanted.x = one.x.view();
        if (only == 1) wanted.v = one.v.view();
        if (only == 2) wanted.codes = one.codes.view();
        if (only == 3) wanted.u = one.u.view();
        gatedLowRankBackward(context, update.operands(), dy.view(), wanted);
        EXPECT_TRUE(only != 0 || sameBits(one.x.storage(), all.x.storage())) << shape;
        EXPECT_TRUE(only != 1 || sameBits(one.v.storage(), all.v.storage())) << shape;
        EXPECT_TRUE(only != 2 || sameBits(one.codes.storage(), all.codes.storage())) << shape;
        EXPECT_TRUE(only != 3 || sameBits(one.u.storage(), all.u.storage())) << shape;
      }
    }
  }
}

TYPED_TEST(GatedLowRankOf, Property37_ThreadsAndInstructionSetChangeNoBit) {
  using T = TypeParam;
  const Shape shape{900, 130, 8, 70};
  Update<T> update(shape, Layout::RowMajor, Layout::RowMajor, 7);
  const LaidOut<T> dy(shape.m, shape.k2, Layout::RowMajor, 8);
  const auto run = [&](Isa isa, int threads) {
    Context context;
    context.cpu.isa = isa;
    context.cpu.threads = threads;
    LaidOut<T> y(shape.m, shape.k2, Layout::RowMajor, 1);
    Gradients<T> gradients(shape, Layout::RowMajor);
    gatedLowRank(context, update.operands(), {}, y.view());
    gatedLowRankBackward(context, update.operands(), dy.view(), gradients.targets());
    return testing::bytesOf(y, gradients.x, gradients.v, gradients.codes, gradients.u);
  };
  const auto first = run(Isa::V2, 1);
  for (const Isa isa : supportedIsas()) {
    for (const int threads : {1, 2, 3, 8}) EXPECT_TRUE(run(isa, threads) == first) << isaName(isa);
  }
}

TEST(GatedLowRank, CodesAreSharedWithoutACopy) {
  const Shape shape{12, 9, 5, 7};
  Update<float> update(shape, Layout::RowMajor, Layout::RowMajor, 3);
  const LaidOut<float> few(3, 5, Layout::CutOut, 4);
  const auto run = [&](const Codes &codes) {
    GatedLowRank operands = update.operands();
    operands.codes = codes;
    LaidOut<float> y(12, 7, Layout::RowMajor, 1);
    gatedLowRank({}, operands, {}, y.view());
    return y.storage();
  };
  const auto expanded = [&](auto rowOf) {
    LaidOut<float> codes(12, 5, Layout::RowMajor, 1);
    for (int64_t m = 0; m < 12; ++m) {
      for (int64_t n = 0; n < 5; ++n)
        codes.view()(m, n) = rowOf(m) < 0 ? 1.0f : few.view()(rowOf(m), n);
    }
    return run(Codes::perRow(codes.view()));
  };
  const MatrixView<const float> view = few.view();
  EXPECT_TRUE(sameBits(run(Codes::ones()), expanded([](int64_t) { return -1; })));
  EXPECT_TRUE(
      sameBits(run(Codes::shared(view.block(1, 0, 1, 5))), expanded([](int64_t) { return 1; })));
  EXPECT_TRUE(
      sameBits(run(Codes::perSequence(view, 4)), expanded([](int64_t m) { return m / 4; })));
  // The same few for every sequence of three.
  const Codes repeated{ElementType::Float32, view.data, 5, 12, 3, 0, view.rowStride, 1};
  EXPECT_TRUE(sameBits(run(repeated), expanded([](int64_t m) { return m % 3; })));
}

TYPED_TEST(GatedLowRankOf, Property45_GatesOfZeroGiveExactlyZeroAndGradients) {
  using T = TypeParam;
  const Shape shape{20, 33, 6, 12};
  Update<T> update(shape, Layout::RowMajor, Layout::RowMajor, 5);
  update.codes.fill(narrow<T>(0.0f));
  const LaidOut<T> dy(shape.m, shape.k2, Layout::RowMajor, 6);
  LaidOut<T> y(shape.m, shape.k2, Layout::RowMajor, 1);
  Gradients<T> gradients(shape, Layout::RowMajor);
  gatedLowRank({}, update.operands(), {}, y.view());
  gatedLowRankBackward({}, update.operands(), dy.view(), gradients.targets());
  const auto isZero = [](auto view) {
    for (int64_t i = 0; i < view.rows; ++i) {
      for (int64_t j = 0; j < view.cols; ++j)
        if (widen(view(i, j)) != 0.0f) return false;
    }
    return true;
  };
  EXPECT_TRUE(isZero(y.view()) && isZero(gradients.x.view()) && isZero(gradients.v.view()) &&
              isZero(gradients.u.view()));
  EXPECT_FALSE(isZero(gradients.codes.view()));
}

TEST(GatedLowRank, AnEmptyBatchHasGradientsOfZero) {
  const Shape shape{0, 9, 4, 5};
  Update<Half> update(shape, Layout::RowMajor, Layout::RowMajor, 5);
  LaidOut<Half> y(0, 5, Layout::RowMajor, 1);
  gatedLowRank({}, update.operands(), {}, y.view());
  Gradients<Half> gradients(shape, Layout::RowMajor);
  gatedLowRankBackward({}, update.operands(), LaidOut<Half>(0, 5, Layout::RowMajor, 1).view(),
                       gradients.targets());
  for (int64_t k = 0; k < 9; ++k) {
    for (int64_t n = 0; n < 4; ++n) EXPECT_EQ(gradients.v.view()(k, n).bits, 0);
  }
  for (int64_t k = 0; k < 5; ++k) {
    for (int64_t n = 0; n < 4; ++n) EXPECT_EQ(gradients.u.view()(k, n).bits, 0);
  }
}

TEST(GatedLowRank, TheIntermediateHasTheRangeOfFloats) {
  // x v is 1e6 or 1e-9, beyond what a half holds; the result is within.
  for (const float size : {1e3f, 3.2e-5f}) {
    const LaidOut<Half> x(1, 1, Layout::RowMajor, 1);
    const auto half = [](float value) {
      LaidOut<Half> made(1, 1, Layout::RowMajor, 1);
      made.fill(narrow<Half>(value));
      return made.view()(0, 0);
    };
    const Half a = half(size), b = half(size), c = half(size > 1.0f ? 1e-3f : 1e3f);
    Half y{};
    const GatedLowRank update{rowMajor(&a, 1, 1), rowMajor(&b, 1, 1), Codes::ones(),
                              rowMajor(&c, 1, 1), size > 1.0f ? 1.0f : 1e3f};
    gatedLowRank({}, update, {}, rowMajor(&y, 1, 1));
    const float exact = widen(a) * widen(b) * widen(c) * update.scale;
    EXPECT_NEAR(widen(y), exact, 1e-3f * exact);
  }
}

TEST(GatedLowRank, ErrorsNameTheOperandAndChangeNothing) {
  const Shape shape{4, 6, 3, 5};
  Update<float> good(shape, Layout::RowMajor, Layout::RowMajor, 1);
  LaidOut<float> y(4, 5, Layout::RowMajor, 2);
  const std::vector<float> before = y.storage();
  const LaidOut<float> wrong(9, 9, Layout::RowMajor, 3);
  const LaidOut<Half> half(6, 3, Layout::RowMajor, 3);
  const auto errorOf = [&](auto change, ConstAnyMatrix base = {}) {
    GatedLowRank update = good.operands();
    change(update);
    return inputErrorOf([&] { gatedLowRank({}, update, base, y.view()); });
  };
  const auto none = [](GatedLowRank &) {};
  EXPECT_NE(errorOf([&](auto &u) { u.v = wrong.view(); }).find("v is [9, 9]"), std::string::npos);
  EXPECT_NE(errorOf([&](auto &u) { u.u = wrong.view(); }).find("u is [9, 9]"), std::string::npos);
  EXPECT_NE(errorOf([&](auto &u) { u.v = half.view(); }).find("v holds float16"),
            std::string::npos);
  EXPECT_NE(
      errorOf([&](auto &u) { u.codes = Codes::perRow(wrong.view()); }).find("codes for 9 rows"),
      std::string::npos);
  EXPECT_NE(errorOf(none, wrong.view()).find("base is [9, 9]"), std::string::npos);
  const auto backward = [&](const GatedGradients &to) {
    return inputErrorOf([&] { gatedLowRankBackward({}, good.operands(), y.view(), to); });
  };
  LaidOut<float> target(9, 9, Layout::RowMajor, 1);
  EXPECT_NE(backward({target.view(), {}, {}, {}, {}}).find("dx is [9, 9]"), std::string::npos);
  EXPECT_NE(backward({{}, target.view(), {}, {}, {}}).find("dv is [9, 9]"), std::string::npos);
  EXPECT_NE(backward({{}, {}, target.view(), {}, {}}).find("dcodes is [9, 9]"), std::string::npos);
  EXPECT_NE(backward({{}, {}, {}, target.view(), {}}).find("du is [9, 9]"), std::string::npos);
  EXPECT_TRUE(sameBits(y.storage(), before));
}

TEST(Element, NarrowRoundsToTheNearestAndOverflowsToInfinity) {
  for (uint32_t bits = 0; bits < 0x10000U; ++bits) {  // every value goes there and back
    const auto sixteen = static_cast<uint16_t>(bits);
    const float half = widen(Half{sixteen});
    const float brain = widen(BFloat16{sixteen});
    const Half halfAgain = narrow<Half>(half);
    const BFloat16 brainAgain = narrow<BFloat16>(brain);
    ASSERT_TRUE(std::isnan(half) ? std::isnan(widen(halfAgain)) : halfAgain.bits == sixteen);
    ASSERT_TRUE(std::isnan(brain) ? std::isnan(widen(brainAgain)) : brainAgain.bits == sixteen);
  }
  EXPECT_EQ(narrow<Half>(65519.996f).bits, 0x7BFF);
  EXPECT_EQ(narrow<Half>(65520.0f).bits, 0x7C00);
  EXPECT_EQ(narrow<Half>(-1e9f).bits, 0xFC00);
  EXPECT_EQ(narrow<BFloat16>(1.00390625f).bits, 0x3F80);  // a tie goes to even
  EXPECT_EQ(narrow<BFloat16>(1.01171875f).bits, 0x3F82);
  EXPECT_EQ(narrow<BFloat16>(std::numeric_limits<float>::max()).bits, 0x7F80);
}

}  // namespace
}  // namespace pulsora
