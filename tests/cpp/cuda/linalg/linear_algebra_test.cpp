#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "cuda/cuda_matrix_test_util.h"
#include "cuda/cuda_test_util.h"
#include "linalg/im2col.h"
#include "linalg/initialise.h"
#include "linalg/math_util.h"
#include "linalg/packing.h"

// Where the order of operations is laid down, the GPU gives the CPU's bits, in the gaps too;
// products by cuBLAS are within the rounding of their operations.

namespace pulsora {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

struct Factors {
  float alpha, beta;
};
const Factors kFactors[] = {{1.0f, 0.0f}, {0.0f, 1.0f}, {-0.3f, 0.7f}};

struct Shape {
  int64_t m, n, k;
};
const Shape kShapes[] = {{1, 1, 1},   {15, 16, 17},   {16, 17, 15},   {33, 1, 33},    {1, 33, 16},
                         {17, 15, 0}, {1000, 33, 17}, {17, 1000, 33}, {33, 17, 1000}, {0, 5, 3},
                         {5, 0, 3},   {64, 64, 64},   {65, 129, 31}};

void wipeUnlessRead(float beta, LaidOut<float> &c) {
  if (beta == 0.0f) c.fill(std::numeric_limits<float>::quiet_NaN());
}

// work(context, matrix) on both backends leaves the same memory; `a` is what it starts from.
template <class Work>
::testing::AssertionResult sameOnBoth(const Context &gpu, LaidOut<float> &a, const Work &work) {
  DeviceLaidOut<float> onGpu(gpu, a);
  work(cpuContext(), a.view());
  work(gpu, onGpu.view());
  return sameBits(a.storage(), onGpu.storage(gpu));
}

TEST(CudaLinearAlgebra, GemmAndAccumulate) {
  PULSORA_REQUIRE_GPU();
  int64_t index = 0;
  for (const Shape &s : kShapes) {
    for (const Factors &f : kFactors) {
      for (int n = 0; n < 4; ++n, ++index) {
        SCOPED_TRACE(message("[", s.m, ", ", s.k, "] x [", s.k, ", ", s.n, "], alpha ", f.alpha,
                             ", beta ", f.beta, ", case ", index));
        const LaidOut<float> a(s.m, s.k, layoutOf(index), 1), b(s.k, s.n, layoutOf(index / 4), 2);
        const Layout layout = layoutOf(index / 16);
        LaidOut<float> c(s.m, s.n, layout, 3), sum(s.m, s.n, layout, 3);
        const LaidOut<float> before(s.m, s.n, Layout::RowMajor, 3);
        wipeUnlessRead(f.beta, c);
        const Context plain = gpuContext(), ordered = reproducibleGpu();
        const DeviceLaidOut<float> da(plain, a), db(plain, b);
        DeviceLaidOut<float> dc(plain, c), dOrdered(plain, c), dSum(plain, sum);
        gemm(cpuContext(), f.alpha, a.view(), b.view(), f.beta, c.view());
        gemm(ordered, f.alpha, da.view(), db.view(), f.beta, dOrdered.view());
        ASSERT_TRUE(sameBits(c.storage(), dOrdered.storage(plain)));
        gemm(plain, f.alpha, da.view(), db.view(), f.beta, dc.view());
        LaidOut<float> got(s.m, s.n, layout, 4);
        const std::vector<float> memory = dc.storage(plain);
        MatrixView<const float> view = got.view();
        view.data = memory.data();
        ASSERT_TRUE(isProduct(f.alpha, a.view(), b.view(), f.beta, before.view(), view));
        accumulate(cpuContext(), a.view(), b.view(), sum.view());
        accumulate(plain, da.view(), db.view(), dSum.view());
        ASSERT_TRUE(sameBits(sum.storage(), dSum.storage(plain)));
      }
    }
  }
}

TEST(CudaLinearAlgebra, LargeProductsAreAddedUpInOrder) {
  PULSORA_REQUIRE_GPU();
  const int64_t m = 2049, n = 2001;  // enough large tiles, with rows and columns left over
  int64_t index = 0;
  for (const int64_t k : {int64_t{1}, int64_t{16}, int64_t{37}}) {
    for (const Layout layout : {Layout::RowMajor, Layout::ColMajor}) {
      SCOPED_TRACE(message("[", m, ", ", k, "] x [", k, ", ", n, "], case ", ++index));
      const LaidOut<float> a(m, k, layoutOf(index), 1), b(k, n, layoutOf(index / 2), 2);
      LaidOut<float> c(m, n, layout, 3);
      const Context gpu = gpuContext();
      const DeviceLaidOut<float> da(gpu, a), db(gpu, b);
      DeviceLaidOut<float> dc(gpu, c);
      accumulate(cpuContext(), a.view(), b.view(), c.view());
      accumulate(gpu, da.view(), db.view(), dc.view());
      ASSERT_TRUE(sameBits(c.storage(), dc.storage(gpu)));
    }
  }
}

TEST(CudaLinearAlgebra, PatchesOfImages) {
  PULSORA_REQUIRE_GPU();
  for (const PatchGrid &grid :
       {PatchGrid{1, 32, 32, {5, 5}, {1, 1}, {1, 1}}, PatchGrid{4, 9, 7, {3, 2}, {2, 1}, {1, 2}},
        PatchGrid{2, 6, 40, {1, 19}, {1, 3}, {1, 1}}, PatchGrid{1, 5, 5, {1, 1}, {1, 1}, {1, 1}},
        PatchGrid{600, 5, 5, {4, 4}, {1, 1}, {1, 1}},        // columns in several turns
        PatchGrid{10, 65, 65, {10, 10}, {1, 1}, {1, 1}}}) {  // larger parts for each block
    for (const int64_t groups : {int64_t{1}, grid.channels}) {
      for (const bool hasOnes : {false, true}) {
        SCOPED_TRACE(message(grid.columns(), " columns, groups ", groups, ", ones ", hasOnes));
        const LaidOut<float> pixels(7, grid.pixels(), Layout::RowMajor, 1);
        const Context gpu = gpuContext();
        const DeviceLaidOut<float> onGpu(gpu, pixels);
        PatchedImages images{pixels.view().data, 7, grid, groups, hasOnes};
        std::vector<float> wanted(static_cast<size_t>(images.rows() * images.columns()));
        takePatches(cpuContext(), images, wanted.data());
        Buffer<float> got(gpu, static_cast<int64_t>(wanted.size()));
        images.pixels = onGpu.view().data;
        takePatches(gpu, images, got.data());
        std::vector<float> host(wanted.size());
        detail::copyToHost(gpu, host.data(), got.data(), got.bytes());
        EXPECT_TRUE(sameBits(host, wanted));
      }
    }
  }
}

TEST(CudaLinearAlgebra, Gemv) {
  PULSORA_REQUIRE_GPU();
  int64_t index = 0;
  for (const int64_t m : kSizes) {
    for (const int64_t k : kSizes) {
      for (const Factors &f : kFactors) {
        ++index;
        SCOPED_TRACE(message("[", m, ", ", k, "], alpha ", f.alpha, ", beta ", f.beta));
        const LaidOut<float> a(m, k, layoutOf(index), 1), x(k, 1, layoutOf(index / 4), 2);
        LaidOut<float> y(m, 1, layoutOf(index / 16), 3);
        const LaidOut<float> before(m, 1, Layout::RowMajor, 3);
        wipeUnlessRead(f.beta, y);
        const Context plain = gpuContext();
        const DeviceLaidOut<float> da(plain, a), dx(plain, x);
        DeviceLaidOut<float> dy(plain, y), dOrdered(plain, y);
        gemv(cpuContext(), f.alpha, a.view(), x.view().col(0), f.beta, y.view().col(0));
        gemv(reproducibleGpu(), f.alpha, da.view(), dx.view().col(0), f.beta,
             dOrdered.view().col(0));
        ASSERT_TRUE(sameBits(y.storage(), dOrdered.storage(plain)));
        gemv(plain, f.alpha, da.view(), dx.view().col(0), f.beta, dy.view().col(0));
        const std::vector<float> memory = dy.storage(plain);
        MatrixView<const float> view = y.view();
        view.data = memory.data();
        ASSERT_TRUE(isProduct(f.alpha, a.view(), x.view(), f.beta, before.view(), view));
      }
    }
  }
}

TEST(CudaLinearAlgebra, Ger) {
  PULSORA_REQUIRE_GPU();
  int64_t index = 0;
  for (const int64_t m : kSizes) {
    for (const int64_t n : kSizes) {
      for (const float alpha : {0.0f, 1.0f, 0.7f}) {
        ++index;
        SCOPED_TRACE(message(m, " x ", n, ", alpha ", alpha));
        const LaidOut<float> x(m, 1, layoutOf(index), 1), y(1, n, layoutOf(index / 2), 2);
        LaidOut<float> a(m, n, layoutOf(index / 3), 3);
        const Context gpu = gpuContext();  // whatever the choice of products
        const DeviceLaidOut<float> dx(gpu, x), dy(gpu, y);
        ASSERT_TRUE(sameOnBoth(gpu, a, [&](const Context &context, MatrixView<float> to) {
          const bool cpu = context.onCpu();
          ger(context, alpha, (cpu ? x.view() : dx.view()).col(0),
              (cpu ? y.view() : dy.view()).row(0), to);
        }));
      }
    }
  }
}

TEST(CudaLinearAlgebra, ScalAndZero) {
  PULSORA_REQUIRE_GPU();
  const Context gpu = gpuContext();
  for (const Layout layout : kLayouts) {
    for (const int64_t m : kSizes) {
      for (const int64_t n : kSizes) {
        SCOPED_TRACE(message(m, " x ", n, ", layout ", static_cast<int>(layout)));
        for (const float alpha : {0.0f, 1.0f, -0.7f}) {
          LaidOut<float> a(m, n, layout, 1);
          ASSERT_TRUE(sameOnBoth(gpu, a, [&](const Context &context, MatrixView<float> to) {
            scal(context, alpha, to);
          }));
        }
        LaidOut<float> a(m, n, layout, 1);
        a.fill(std::numeric_limits<float>::quiet_NaN());
        ASSERT_TRUE(sameOnBoth(
            gpu, a, [](const Context &context, MatrixView<float> to) { setZero(context, to); }));
      }
    }
  }
}

template <class Src, class Dst>
void expectSameConversion(int64_t rows, int64_t cols) {
  const Context gpu = gpuContext();
  for (const Layout from : kLayouts) {
    for (const Layout to : kLayouts) {
      const LaidOut<Src> source(rows, cols, from, 1);
      LaidOut<Dst> target(rows, cols, to, 2);
      const DeviceLaidOut<Src> gpuSource(gpu, source);
      DeviceLaidOut<Dst> gpuTarget(gpu, target);
      elemcopy(cpuContext(), source.view(), target.view());
      elemcopy(gpu, gpuSource.view(), gpuTarget.view());
      ASSERT_TRUE(sameBits(target.storage(), gpuTarget.storage(gpu)))
          << rows << " x " << cols << ", layouts " << static_cast<int>(from)
          << static_cast<int>(to);
    }
  }
}

TEST(CudaLinearAlgebra, CopiesConvertEveryPairOfTypes) {
  PULSORA_REQUIRE_GPU();
  for (const int64_t rows : {1, 31, 33, 100}) {
    for (const int64_t cols : {1, 32, 71}) {
      expectSameConversion<float, double>(rows, cols);
      expectSameConversion<float, Half>(rows, cols);
      expectSameConversion<float, int32_t>(rows, cols);
      expectSameConversion<float, int64_t>(rows, cols);
      expectSameConversion<float, uint8_t>(rows, cols);
      expectSameConversion<double, float>(rows, cols);
      expectSameConversion<Half, float>(rows, cols);
      expectSameConversion<int32_t, float>(rows, cols);
      expectSameConversion<int64_t, float>(rows, cols);
      expectSameConversion<uint8_t, float>(rows, cols);
      expectSameConversion<double, double>(rows, cols);
      expectSameConversion<Half, Half>(rows, cols);
      expectSameConversion<int32_t, int32_t>(rows, cols);
      expectSameConversion<int64_t, int64_t>(rows, cols);
      expectSameConversion<uint8_t, uint8_t>(rows, cols);
    }
  }
}

TEST(CudaLinearAlgebra, CopiesAndTranspositionsOfEverySize) {
  PULSORA_REQUIRE_GPU();
  const Context gpu = gpuContext();
  for (const int64_t rows : kSizes) {
    for (const int64_t cols : kSizes) {
      expectSameConversion<float, float>(rows, cols);
      if (HasFatalFailure()) return;
      for (const Layout from : kLayouts) {
        const LaidOut<float> source(rows, cols, from, 1);
        const DeviceLaidOut<float> gpuSource(gpu, source);
        for (const Layout to : kLayouts) {
          LaidOut<float> target(cols, rows, to, 2);
          ASSERT_TRUE(sameOnBoth(
              gpu, target,
              [&](const Context &context, MatrixView<float> out) {
                transpose(context, context.onCpu() ? source.view() : gpuSource.view(), out);
              }))
              << rows << " x " << cols << ", layouts " << static_cast<int>(from)
              << static_cast<int>(to);
        }
      }
    }
  }
}

// More tiles than a grid has blocks: each block then takes several.
TEST(CudaLinearAlgebra, ATranspositionOfMoreTilesThanAGridHolds) {
  PULSORA_REQUIRE_GPU();
  const Context gpu = gpuContext();
  const int64_t rows = (int64_t{1} << 20) * 32 + 40, cols = 2;
  std::vector<uint8_t> source(static_cast<size_t>(rows * cols));
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<uint8_t>(i * 31 >> 3);
  Buffer<uint8_t> from(gpu, rows * cols), to(gpu, rows * cols);
  detail::copyFromHost(gpu, from.data(), source.data(), from.bytes());
  elemcopy(gpu, rowMajor(from.data(), rows, cols).transposed(), rowMajor(to.data(), cols, rows));
  std::vector<uint8_t> got(source.size()), expected(source.size());
  detail::copyToHost(gpu, got.data(), to.data(), to.bytes());
  elemcopy(cpuContext(), rowMajor(source.data(), rows, cols).transposed(),
           rowMajor(expected.data(), cols, rows));
  EXPECT_TRUE(got == expected);
}

TEST(CudaLinearAlgebra, PackingAndBack) {
  PULSORA_REQUIRE_GPU();
  const Context gpu = gpuContext();
  for (const Layout few : kLayouts) {
    for (const Layout many : kLayouts) {
      for (const int64_t k : {0, 1, 5, 33}) {
        const int64_t offset = 40 - k;  // up to the edge
        SCOPED_TRACE(message("K ", k, ", layouts ", static_cast<int>(few), static_cast<int>(many)));
        const LaidOut<float> part(17, k, few, 1);
        const DeviceLaidOut<float> gpuPart(gpu, part);
        LaidOut<float> wide(17, 40, many, 2), high(40, 17, many, 2);
        ASSERT_TRUE(sameOnBoth(gpu, wide, [&](const Context &context, MatrixView<float> to) {
          packColumns(context, context.onCpu() ? part.view() : gpuPart.view(), to, offset);
        }));
        ASSERT_TRUE(sameOnBoth(gpu, high, [&](const Context &context, MatrixView<float> to) {
          packRows(context, (context.onCpu() ? part.view() : gpuPart.view()).transposed(), to,
                   offset);
        }));
        const DeviceLaidOut<float> gpuWide(gpu, wide), gpuHigh(gpu, high);
        LaidOut<float> columns(17, k, few, 3), rows(k, 17, few, 3);
        ASSERT_TRUE(sameOnBoth(gpu, columns, [&](const Context &context, MatrixView<float> to) {
          unpackColumns(context, context.onCpu() ? wide.view() : gpuWide.view(), to, offset);
        }));
        ASSERT_TRUE(sameOnBoth(gpu, rows, [&](const Context &context, MatrixView<float> to) {
          unpackRows(context, context.onCpu() ? high.view() : gpuHigh.view(), to, offset);
        }));
        ASSERT_TRUE(sameBits(columns.storage(), part.storage()));
      }
    }
  }
}

TEST(CudaLinearAlgebra, KaimingOfTheFirstRowsAndColumns) {
  PULSORA_REQUIRE_GPU();
  const Context gpu = gpuContext();
  const RandomKey key = makeKey(3, 1, 4);
  for (const Layout layout : kLayouts) {
    for (const int64_t count : {0, 1, 5, 33}) {
      LaidOut<float> rows(33, 71, layout, 1), columns(71, 33, layout, 1);
      EXPECT_TRUE(sameOnBoth(gpu, rows, [&](const Context &context, MatrixView<float> w) {
        kaimingRows(context, key, 6, count, 0.5f, w);
      }));
      EXPECT_TRUE(sameOnBoth(gpu, columns, [&](const Context &context, MatrixView<float> w) {
        kaimingColumns(context, key, 6, count, 0.5f, w);
      }));
    }
  }
}

}  // namespace
}  // namespace pulsora
