#include <gtest/gtest.h>

#include "cuda/cuda_matrix_test_util.h"
#include "cuda/cuda_test_util.h"
#include "lowrank/low_rank_test_util.h"

namespace pulsora {
namespace {

using testing::DeviceLaidOut;
using testing::Exact;
using testing::gpuContext;
using testing::isNear;
using testing::LaidOut;
using testing::Layout;
using testing::Linear;
using testing::sameBits;
using testing::Shape;
using testing::toleranceOf;

// A layer on the GPU.
template <class T>
struct OnGpu {
  DeviceLaidOut<T> x, v, codes, u, weight, bias;

  OnGpu(const Context &context, const Linear<T> &host)
      : x(context, host.update.x),
        v(context, host.update.v),
        codes(context, host.update.codes),
        u(context, host.update.u),
        weight(context, host.weight),
        bias(context, host.bias) {}
  GatedLowRank operands() const {
    return {x.view(), v.view(), Codes::perRow(codes.view()), u.view(), 2.0f};
  }
};

// Several tiles, parts of tiles, one panel and many, every padding of N, and what is
// left to other products.
const Shape kShapes[] = {{1, 64, 8, 64},      {100, 72, 8, 200},  {129, 328, 5, 136},
                         {300, 1000, 16, 72}, {257, 16, 11, 392}, {700, 8, 1, 8},
                         {700, 24, 8, 392},   {64, 128, 17, 64},  {33, 17, 5, 41},
                         {0, 64, 8, 64},      {20, 64, 0, 64}};

template <class T>
class CudaLowRankLinearOf : public ::testing::Test {};
using Elements = ::testing::Types<float, Half, BFloat16>;
TYPED_TEST_SUITE(CudaLowRankLinearOf, Elements);

TYPED_TEST(CudaLowRankLinearOf, Property45_IsTheFormulaInDoublePrecision) {
  PULSORA_REQUIRE_GPU();
  using T = TypeParam;
  const double tolerance = toleranceOf<T>() * (std::is_same_v<T, float> ? 5.0 : 1.0);
  const Context context = gpuContext();
  unsigned seed = 0;
  for (const Shape &shape : kShapes) {
    for (const Layout layout : {Layout::RowMajor, Layout::CutOut, Layout::Strided}) {
      // The weight and v have one layout: the copy engine takes one of both at a time.
      const Layout ofFactors = ++seed % 3 == 0 ? Layout::ColMajor : Layout::RowMajor;
      const Linear<T> host(shape, layout, ofFactors, seed);
      const OnGpu<T> layer(context, host);
      const LaidOut<T> target(shape.m, shape.k2, layout, 1);
      DeviceLaidOut<T> y(context, target), again(context, target);
      for (const bool hasBias : {true, false}) {
        const ConstAnyMatrix bias = hasBias ? ConstAnyMatrix(layer.bias.view()) : ConstAnyMatrix();
        for (DeviceLaidOut<T> *to : {&y, &again})
          gatedLowRankLinear(context, layer.operands(), layer.weight.view(), bias, to->view());
        const std::vector<T> made = y.storage(context);
        const MatrixView<const T> at = y.view();
        const MatrixView<const T> view{made.data(), at.rows, at.cols, at.rowStride, at.colStride};
        EXPECT_TRUE(isNear<T>(host.reference(hasBias), view, tolerance)) << shape;
        EXPECT_TRUE(sameBits(made, again.storage(context))) << shape;
      }
    }
  }
}

// x v is far beyond what a half holds, or far below; results are not, nor the layer beside it.
TEST(CudaLowRankLinear, TheIntermediateHasTheRangeOfFloats) {
  PULSORA_REQUIRE_GPU();
  const Context context = gpuContext();
  const Shape shape{40, 64, 8, 64};
  for (const float size : {300.0f, 1e-4f}) {
    Linear<Half> host(shape, Layout::RowMajor, Layout::RowMajor, 3);
    const auto scale = [](LaidOut<Half> &matrix, float by) {
      const MatrixView<Half> m = matrix.view();
      for (int64_t i = 0; i < m.rows; ++i) {
        for (int64_t j = 0; j < m.cols; ++j) m(i, j) = narrow<Half>(widen(m(i, j)) * by);
      }
    };
    scale(host.update.v, size);
    scale(host.update.x, size);
    scale(host.weight, 1.0f / size);
    const bool isLarge = size > 1.0f;
    scale(host.update.u, isLarge ? 0.1f / size / size : 0.1f / size);
    scale(host.update.codes, isLarge ? 1.0f : 1.0f / size);
    const OnGpu<Half> layer(context, host);
    const LaidOut<Half> target(shape.m, shape.k2, Layout::RowMajor, 1);
    DeviceLaidOut<Half> y(context, target);
    gatedLowRankLinear(context, layer.operands(), layer.weight.view(), layer.bias.view(), y.view());
    const std::vector<Half> made = y.storage(context);
    EXPECT_TRUE(isNear<Half>(host.reference(true), rowMajor<const Half>(made.data(), 40, 64), 1e-3))
        << size;
  }
}

}  // namespace
}  // namespace pulsora
