#include "periphery/analog_read.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include "core/check.h"
#include "linalg/math_util.h"
#include "periphery/analog_read_test_util.h"

namespace pulsora::testing {
namespace {

/// |y - W x| <= 4 eps n sum_j |w_ij| |x_j| for all elements.
void expectExactProduct(const Matrix &w, const Matrix &x, const Matrix &y) {
  for (int64_t s = 0; s < x.rows; ++s) {
    for (int64_t i = 0; i < w.rows; ++i) {
      double exact = 0.0, magnitude = 0.0;
      for (int64_t j = 0; j < w.cols; ++j) {
        exact += double(w(i, j)) * double(x(s, j));
        magnitude += std::fabs(double(w(i, j)) * double(x(s, j)));
      }
      const double eps = std::numeric_limits<float>::epsilon();
      EXPECT_LE(std::fabs(double(y(s, i)) - exact), 4 * eps * double(w.cols) * magnitude);
    }
  }
}

TEST(AnalogRead, Property17_APerfectReadIsTheProduct) {
  IOParameters perfect;
  perfect.is_perfect = true;
  for (int64_t rows : {1, 9}) {
    for (int64_t cols : {1, 200}) {
      const Matrix w = Matrix::random(rows, cols, 1.0f, 1), x = Matrix::random(5, cols, 3.0f, 2);
      expectExactProduct(w, x, readAll(perfect, w, x));
      expectExactProduct(w, x, readAll(plain(), w, x));  // nor do effects at 0 do anything
    }
  }
}

TEST(AnalogRead, ForwardAndBackwardReadTheArrayAndItsTranspose) {
  IOParameters perfect;
  perfect.is_perfect = true;
  const Matrix w = Matrix::random(6, 11, 1.0f, 1), x = Matrix::random(3, 11, 1.0f, 2);
  const Matrix d = Matrix::random(3, 6, 1.0f, 3);
  ForwardBackwardPass pass(Context{}, perfect, perfect, 6, 11, kKey);
  Matrix y(3, 6), dx(3, 11), wt(11, 6);
  pass.forward().run({}, w.view(), x.view(), y.view(), 0);
  pass.backward().run({}, w.view().transposed(), d.view(), dx.view(), 0);
  copy(Context{}, w.view().transposed(), wt.view());
  expectExactProduct(w, x, y);
  expectExactProduct(wt, d, dx);
}

TEST(BoundManagement, ReadsOnceMoreThanItDoublesAndOnlyWhatClips) {
  IOParameters p = plain();
  p.out_bound = 1.0f;
  p.bound_management = BoundManagement::Iterative;
  p.max_bm_factor = 4.0f;
  const Matrix w(1, 1, 1.0f);
  Matrix x(5, 1);
  x.values = {0.9f, -1.5f, 3.9f, -4.0f, 7.0f};
  EXPECT_EQ(readAll(p, w, x).values, (Vector{0.9f, -1.5f, 3.9f, -4.0f, 4.0f}));
  p.bm_test_negative_bound = false;
  EXPECT_EQ(readAll(p, w, x).values, (Vector{0.9f, -1.0f, 3.9f, -1.0f, 4.0f}));
  p.bm_test_negative_bound = true;
  EXPECT_EQ(readAll(p, w, x, {}, Pass::Backward).values, (Vector{0.9f, -1.0f, 1.0f, -1.0f, 1.0f}));
  p.bm_backward = true;
  EXPECT_EQ(readAll(p, w, x, {}, Pass::Backward).values, (Vector{0.9f, -1.5f, 3.9f, -4.0f, 4.0f}));
  p.bound_management = BoundManagement::None;
  EXPECT_EQ(readAll(p, w, x).values, (Vector{0.9f, -1.0f, 1.0f, -1.0f, 1.0f}));
}

TEST(BoundManagement, TheWorstCaseFitsInOneRepetition) {
  // 300 inputs of 1 on weights of at most 0.6 cannot exceed alpha out_bound = 300 * 0.6.
  IOParameters p = plain();
  p.noise_management = NoiseManagement::AbsMax;
  p.out_bound = 2.0f;
  p.bound_management = BoundManagement::IterativeWorstCase;
  const Matrix w(1, 300, 0.6f), x(2, 300, 1.0f);
  for (float v : readAll(p, w, x).values) EXPECT_NEAR(v, 180.0f, 0.01f);
}

TEST(BoundManagement, IsCountedInReads) {
  IOParameters p = plain();
  p.out_bound = 1.0f;
  p.bound_management = BoundManagement::Iterative;
  int reads = 0;
  const Matrix w(1, 1, 1.0f);
  const AnalogRead::Product product = [&](MatrixView<const float> in, MatrixView<float> out) {
    ++reads;
    copy(Context{}, in, out);
  };
  Matrix y(2, 1);
  for (auto [largest, expected] : {std::pair<float, int>{0.5f, 1}, {1.5f, 2}, {7.0f, 4}}) {
    Matrix x(2, 1, 0.1f);
    x.values[1] = largest;
    reads = 0;
    readOf(p, w).run({}, w.view(), product, x.view(), y.view(), 0);
    EXPECT_EQ(reads, expected);
    EXPECT_EQ(y.values[1], largest);
  }
}

TEST(NoiseManagement, ALargerInputIsOnlyALargerScale) {
  // A power of two passes through every step exactly: y(8 x) = 8 y(x), noise included.
  const Matrix w = Matrix::random(12, 30, 0.5f, 1), x = Matrix::random(9, 30, 1.0f, 2);
  Matrix large = x;
  for (float &v : large.values) v *= 8.0f;
  for (NoiseManagement management :
       {NoiseManagement::AbsMax, NoiseManagement::AverageAbsMax, NoiseManagement::AbsMaxNPSum}) {
    IOParameters p;
    p.noise_management = management;
    const Matrix y = readAll(p, w, x), expected = readAll(p, w, large);
    for (size_t i = 0; i < y.values.size(); ++i) EXPECT_EQ(8.0f * y.values[i], expected.values[i]);
  }
}

TEST(NoiseManagement, AZeroInputReadsAsZero) {
  const Matrix w = Matrix::random(12, 30, 0.5f, 1), x(3, 30);
  for (NoiseManagement management :
       {NoiseManagement::AbsMax, NoiseManagement::Max, NoiseManagement::AverageAbsMax,
        NoiseManagement::AbsMaxNPSum}) {
    IOParameters p;
    p.noise_management = management;
    p.inp_noise = 0.1f;
    for (float v : readAll(p, w, x).values) EXPECT_EQ(v, 0.0f);
  }
}

TEST(NoiseManagement, Property38_TheRunningMeanIsRestored) {
  IOParameters p;
  p.noise_management = NoiseManagement::AverageAbsMax;
  p.nm_decay = 0.2f;
  const Matrix w = Matrix::random(5, 9, 0.5f, 1), x = Matrix::random(11, 9, 1.0f, 2);
  AnalogRead read = readOf(p, w), resumed = readOf(p, w);
  Matrix y(11, 5), again(11, 5);
  read.run({}, w.view(), x.view(), y.view(), 0);
  State state;
  read.saveTo({}, state, "forward/");
  resumed.loadFrom({}, state, "forward/");
  read.run({}, w.view(), x.view(), y.view(), 11);
  resumed.run({}, w.view(), x.view(), again.view(), 11);
  EXPECT_TRUE(sameBits(y, again));
  EXPECT_FALSE(sameBits(y, readAll(p, w, x, {}, Pass::Forward, 11)));
  EXPECT_THROW(resumed.loadFrom({}, State{}, "forward/"), StateError);
}

TEST(AnalogRead, KeepsItsScratchMemory) {
  const Matrix w = Matrix::random(4, 6, 0.5f, 1), x = Matrix::random(8, 6, 1.0f, 2);
  Matrix y(8, 4);
  std::vector<const float *> seen;
  const AnalogRead::Product product = [&](MatrixView<const float> in, MatrixView<float> out) {
    seen.push_back(in.data);
    seen.push_back(out.data);
    gemm(Context{}, 1.0f, in, w.view().transposed(), 0.0f, out);
  };
  AnalogRead read = readOf(IOParameters{}, w);
  for (int64_t rows : {8, 3, 8}) {
    read.run({}, w.view(), product, x.view().block(0, 0, rows, 6), y.view().block(0, 0, rows, 4),
             0);
  }
  ASSERT_EQ(seen.size(), 6U);
  for (size_t i = 2; i < seen.size(); ++i) EXPECT_EQ(seen[i], seen[i % 2]);
}

TEST(AnalogRead, TakesEmptyBatchesAndRefusesWhatDoesNotFit) {
  const Matrix w(4, 6), x(2, 6), none(0, 6);
  Matrix y(2, 4), noOutput(0, 4), narrow(2, 3), tall(3, 4);
  for (bool perfect : {false, true}) {
    IOParameters p;
    p.is_perfect = perfect;
    AnalogRead read = readOf(p, w);
    EXPECT_NO_THROW(read.run({}, w.view(), none.view(), noOutput.view(), 0));
    EXPECT_THROW(read.run({}, w.view(), x.view(), narrow.view(), 0), InputError);
    EXPECT_THROW(read.run({}, w.view(), x.view(), tall.view(), 0), InputError);
    EXPECT_THROW(read.run({}, w.view().transposed(), x.view(), y.view(), 0), InputError);
    EXPECT_THROW(read.run({}, w.view(), w.view().transposed(), y.view(), 0), InputError);
  }
}

}  // namespace
}  // namespace pulsora::testing
