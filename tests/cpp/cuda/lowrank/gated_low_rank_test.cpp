#include "lowrank/gated_low_rank.h"

#include <cmath>
#include <gtest/gtest.h>
#include <tuple>
#include <vector>

#include "cuda/cuda_matrix_test_util.h"
#include "cuda/cuda_test_util.h"
#include "lowrank/adapter_gradients.h"
#include "lowrank/low_rank_test_util.h"

namespace pulsora {
namespace {

using testing::DeviceLaidOut;
using testing::gpuContext;
using testing::Gradients;
using testing::isNear;
using testing::isProduct;
using testing::LaidOut;
using testing::Layout;
using testing::referenceOf;
using testing::sameBits;
using testing::Shape;
using testing::toleranceOf;
using testing::Update;

// The operands of an Update on the GPU.
template <class T>
struct OnGpu {
  DeviceLaidOut<T> x, v, codes, u;

  OnGpu(const Context &context, const Update<T> &host)
      : x(context, host.x), v(context, host.v), codes(context, host.codes), u(context, host.u) {}
  GatedLowRank operands() const {
    const auto &[x_, v_, codes_, u_] = *this;
    return {x_.view(), v_.view(), Codes::perRow(codes_.view()), u_.view(), 2.0f};
  }
};

// A matrix of the GPU's, in the layout of a host's, back in host memory.
template <class T>
class Fetched {
 public:
  Fetched(const Context &context, const DeviceLaidOut<T> &from) : storage_(from.storage(context)) {
    const MatrixView<const T> view = from.view();
    view_ = {storage_.data(), view.rows, view.cols, view.rowStride, view.colStride};
  }
  MatrixView<const T> view() const { return view_; }
  const std::vector<T> &storage() const { return storage_; }

 private:
  std::vector<T> storage_;
  MatrixView<const T> view_;
};

// Every kernel, sizes between theirs, and what is left to other products.
const Shape kShapes[] = {{128, 256, 8, 256},   {1, 256, 8, 256},    {100, 40, 5, 104},
                         {200, 768, 8, 760},   {8500, 768, 8, 512}, {300, 1536, 16, 1000},
                         {50, 64, 12, 32},     {70, 4096, 8, 4000}, {33, 2048, 16, 96},
                         {40, 1600, 32, 1600}, {40, 88, 64, 2048},  {33, 17, 5, 41},
                         {0, 64, 8, 64},       {20, 64, 0, 64},     {1024, 1024, 16, 528}};

template <class T>
class CudaLowRankOf : public ::testing::Test {};
using Elements = ::testing::Types<float, Half, BFloat16>;
TYPED_TEST_SUITE(CudaLowRankOf, Elements);

// Sums on a GPU are of another order, and of tensor cores'.
template <class T>
constexpr double onGpu() {
  return toleranceOf<T>() * (std::is_same_v<T, float> ? 5.0 : 1.0);
}

TYPED_TEST(CudaLowRankOf, Property45_IsTheFormulaInDoublePrecision) {
  PULSORA_REQUIRE_GPU();
  using T = TypeParam;
  const Context context = gpuContext();
  unsigned seed = 0;
  for (const Shape &shape : kShapes) {
    for (const Layout layout : {Layout::RowMajor, Layout::Strided}) {
      const Layout ofFactors = ++seed % 3 == 0 ? Layout::ColMajor : Layout::RowMajor;
      const Update<T> host(shape, layout, ofFactors, seed);
      const OnGpu<T> update(context, host);
      const LaidOut<T> target(shape.m, shape.k2, layout, 1), added(shape.m, shape.k2, layout, 2);
      DeviceLaidOut<T> y(context, target), again(context, target), base(context, added);
      gatedLowRank(context, update.operands(), {}, y.view());
      gatedLowRank(context, update.operands(), {}, again.view());
      const auto reference = referenceOf(host);
      const Fetched<T> made(context, y);
      EXPECT_TRUE(isNear<T>(reference.y, made.view(), onGpu<T>())) << shape;
      EXPECT_TRUE(sameBits(made.storage(), again.storage(context))) << shape;
      gatedLowRank(context, update.operands(), base.view(), y.view());
      gatedLowRank(context, update.operands(), base.view(), base.view());
      const Fetched<T> sum(context, y);
      EXPECT_TRUE(isNear<T>(reference.plus(added.view()), sum.view(), onGpu<T>())) << shape;
      EXPECT_TRUE(isNear<T>(testing::Exact(sum.view()), Fetched<T>(context, base).view(), 0.0));
    }
  }
}

TYPED_TEST(CudaLowRankOf, Property46_GradientsAreThoseOfDoublePrecision) {
  PULSORA_REQUIRE_GPU();
  using T = TypeParam;
  const Context context = gpuContext();
  unsigned seed = 50;
  for (const Shape &shape : kShapes) {
    for (const Layout layout : {Layout::RowMajor, Layout::Strided}) {
      const Layout ofFactors = ++seed % 3 == 0 ? Layout::ColMajor : Layout::RowMajor;
      const Update<T> host(shape, layout, ofFactors, seed);
      const OnGpu<T> update(context, host);
      const LaidOut<T> gradient(shape.m, shape.k2, layout, 3);
      const DeviceLaidOut<T> dy(context, gradient);
      const Gradients<T> empty(shape, layout);
      const auto run = [&](bool ofX, bool ofFactorsToo) {
        DeviceLaidOut<T> x(context, empty.x), v(context, empty.v), u(context, empty.u);
        DeviceLaidOut<float> codes(context, empty.codes);
        GatedGradients targets;
        if (ofX) targets.x = x.view(), targets.codes = codes.view();
        if (ofFactorsToo) targets.v = v.view(), targets.u = u.view();
        // Once in memory of its own, once in ours.
        const int64_t size = gatedLowRankScratch(context, update.operands(), dy.view(), targets);
        Buffer<float> scratch(context, ofX ? 0 : size);
        targets.scratch = vectorView(scratch.data(), scratch.size());
        gatedLowRankBackward(context, update.operands(), dy.view(), targets);
        return std::tuple{Fetched<T>(context, x), Fetched<T>(context, v),
                          Fetched<float>(context, codes), Fetched<T>(context, u)};
      };
      const auto [x, v, codes, u] = run(true, true);
      const auto reference = referenceOf(host, gradient.view());
      EXPECT_TRUE(isNear<T>(reference.dx, x.view(), onGpu<T>())) << shape;
      EXPECT_TRUE(isNear<T>(reference.dv, v.view(), onGpu<T>())) << shape;
      // Of 4096 terms, tensor cores' sums keep a bit less than float's.
      EXPECT_TRUE(isNear<float>(reference.dcodes, codes.view(), shape.k1 > 768 ? 2e-5 : 5e-6))
          << shape;
      EXPECT_TRUE(isNear<T>(reference.du, u.view(), onGpu<T>())) << shape;
      // Part by part, and once more: the same bits.
      const auto [xAlone, noV, codesAlone, noU] = run(true, false);
      const auto [noX, vAlone, noCodes, uAlone] = run(false, true);
      EXPECT_TRUE(sameBits(x.storage(), xAlone.storage())) << shape;
      EXPECT_TRUE(sameBits(codes.storage(), codesAlone.storage())) << shape;
      EXPECT_TRUE(sameBits(v.storage(), vAlone.storage())) << shape;
      EXPECT_TRUE(sameBits(u.storage(), uAlone.storage())) << shape;
      EXPECT_TRUE(sameBits(noX.storage(), empty.x.storage())) << shape;
      EXPECT_TRUE(sameBits(noV.storage(), empty.v.storage())) << shape;
    }
  }
}

TEST(CudaLowRank, CodesAreSharedAsOnTheCpu) {
  PULSORA_REQUIRE_GPU();
  const Context context = gpuContext();
  const Shape shape{48, 64, 8, 40};
  const Update<Half> host(shape, Layout::RowMajor, Layout::RowMajor, 3);
  const OnGpu<Half> update(context, host);
  const LaidOut<Half> few(12, 8, Layout::CutOut, 4);
  const DeviceLaidOut<Half> fewOnGpu(context, few);
  using View = MatrixView<const Half>;
  const auto kinds = [](View v) {
    return std::vector<Codes>{Codes::ones(),
                              Codes::shared(v.block(5, 0, 1, 8)),
                              Codes::perSequence(v, 4),
                              {ElementType::Float16, v.data, 8, 48, 12, 0, v.rowStride, 1}};
  };
  const std::vector<Codes> onHost = kinds(few.view()), onDevice = kinds(fewOnGpu.view());
  for (size_t kind = 0; kind < onHost.size(); ++kind) {
    LaidOut<Half> y(48, 40, Layout::RowMajor, 1);
    DeviceLaidOut<Half> yOnGpu(context, y);
    GatedLowRank first = host.operands(), second = update.operands();
    first.codes = onHost[kind];
    second.codes = onDevice[kind];
    gatedLowRank({}, first, {}, y.view());
    gatedLowRank(context, second, {}, yOnGpu.view());
    const Fetched<Half> made(context, yOnGpu);
    EXPECT_TRUE(isNear<Half>(testing::Exact(MatrixView<const Half>(y.view())), made.view(), 5e-4))
        << kind;
  }
}

// x v is far beyond what a half holds, or far below; results and gradients are not.
TEST(CudaLowRank, TheIntermediateHasTheRangeOfFloats) {
  PULSORA_REQUIRE_GPU();
  const Context context = gpuContext();
  const Shape shape{40, 64, 8, 64};
  for (const float size : {1e3f, 1e-4f}) {
    Update<Half> host(shape, Layout::RowMajor, Layout::RowMajor, 3);
    LaidOut<Half> dy(40, 64, Layout::RowMajor, 7);
    const auto scale = [](LaidOut<Half> &matrix, float by) {
      const MatrixView<Half> m = matrix.view();
      for (int64_t i = 0; i < m.rows; ++i) {
        for (int64_t j = 0; j < m.cols; ++j) m(i, j) = narrow<Half>(widen(m(i, j)) * by);
      }
    };
    scale(host.x, size);
    scale(host.v, size);
    scale(host.u, 1.0f / size);
    scale(host.codes, size < 1.0f ? 1e2f : 1.0f);
    scale(dy, size);
    const OnGpu<Half> update(context, host);
    DeviceLaidOut<Half> y(context, dy), dyOnGpu(context, dy);
    gatedLowRank(context, update.operands(), {}, y.view());
    const auto reference = referenceOf(host, MatrixView<const Half>(dy.view()));
    testing::Exact expected = reference.y;
    for (double &value : expected.values)  // as a half: infinite beyond 65504
      value = static_cast<double>(widen(narrow<Half>(static_cast<float>(value))));
    const Fetched<Half> made(context, y);
    double error = 0.0, norm = 0.0;
    for (int64_t i = 0; i < 40; ++i) {
      for (int64_t j = 0; j < 64; ++j) {
        const auto value = static_cast<double>(widen(made.view()(i, j)));
        if (std::isinf(value) || std::isinf(expected(i, j))) continue;
        error += (value - expected(i, j)) * (value - expected(i, j));
        norm += expected(i, j) * expected(i, j);
      }
    }
    EXPECT_LT(std::sqrt(error), 1e-3 * std::sqrt(norm)) << size;
    EXPECT_GT(norm, 0.0);
  }
}

TEST(CudaLowRank, Property47_AdapterGradientsAreThoseOfSinglePrecision) {
  PULSORA_REQUIRE_GPU();
  const Context context = gpuContext();
  // Products of cuBLAS, then the kernel: few tiles, and many with columns in one group and in
  // several.
  constexpr int64_t kSizes[][2] = {{1, 15},    {17, 64},    {1000, 15},  {1000, 64},  {64, 128},
                                   {90, 1100}, {200, 4100}, {2200, 300}, {1000, 2100}};
  for (const auto &[m, n] : kSizes) {
    for (const int64_t k : {1, 5, 16, 33, 64}) {
      if (k == 33 && m * n > 500000) continue;  // the same kernels as with 64
      for (const float magnitude : {1.0f, 1e30f}) {
        LaidOut<float> dc(m, n, Layout::RowMajor, 1);
        const LaidOut<float> a(m, k, Layout::CutOut, 2), b(k, n, Layout::ColMajor, 3);
        const LaidOut<float> da(m, k, Layout::RowMajor, 4), db(k, n, Layout::RowMajor, 5);
        // Neighbours of very different magnitude.
        for (int64_t i = 0; magnitude > 1.0f && i < m * n; i += 3)
          dc.view()(i / n, i % n) *= magnitude;
        const DeviceLaidOut<float> onD(context, dc), onA(context, a), onB(context, b);
        DeviceLaidOut<float> toA(context, da), toB(context, db);
        for (const bool accumulate : {false, true}) {
          const Fetched<float> beforeA(context, toA), beforeB(context, toB);
          adapterGradients(context, onD.view(), onA.view(), onB.view(), {toA.view(), accumulate},
                           {toB.view(), accumulate});
          const Fetched<float> madeA(context, toA), madeB(context, toB);
          const float beta = accumulate ? 1.0f : 0.0f;
          EXPECT_TRUE(
              isProduct(1.0f, dc.view(), b.view().transposed(), beta, beforeA.view(), madeA.view()))
              << m << " x " << n << ", K " << k;
          EXPECT_TRUE(
              isProduct(1.0f, a.view().transposed(), dc.view(), beta, beforeB.view(), madeB.view()))
              << m << " x " << n << ", K " << k;
        }
        // The bits of each gradient alone, one added and one not, again.
        DeviceLaidOut<float> bothA(context, da), bothB(context, db), aloneA(context, da),
            aloneB(context, db);
        adapterGradients(context, onD.view(), onA.view(), onB.view(), {bothA.view(), true},
                         {bothB.view(), false});
        adapterGradients(context, onD.view(), onA.view(), onB.view(), {aloneA.view(), true}, {});
        adapterGradients(context, onD.view(), onA.view(), onB.view(), {}, {aloneB.view(), false});
        EXPECT_TRUE(sameBits(bothA.storage(context), aloneA.storage(context)));
        EXPECT_TRUE(sameBits(bothB.storage(context), aloneB.storage(context)));
      }
    }
  }
}

}  // namespace
}  // namespace pulsora
