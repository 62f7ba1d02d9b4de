#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "lrtt/lrtt_test_util.h"

namespace pulsora {
namespace {

LrttRig filled(int64_t d, int64_t x, int rank, bool swap) {
  LrttRig rig(d, x, rank);
  rig.params.swap_xd = swap;
  rig.build();
  rig.setW(randomMat(d, x, 0.3f, 1));
  rig.setFactors(randomMat(swap ? x : d, rank, 0.2f, 2), randomMat(rank, swap ? d : x, 0.4f, 3));
  return rig;
}

// The adapter's share of the effective weight, over alpha: A B, or its transpose.
std::vector<double> adapterProduct(const LrttRig &rig) {
  if (!rig.params.swap_xd) return product(rig.a(), rig.b());
  const std::vector<double> transposed = product(rig.a(), rig.b());
  std::vector<double> out(transposed.size());
  for (int64_t i = 0; i < rig.d; ++i) {
    for (int64_t j = 0; j < rig.x; ++j)
      out[size_t(i * rig.x + j)] = transposed[size_t(j * rig.d + i)];
  }
  return out;
}

TEST(LrttRead, Property17_InjectEquivalence) {
  for (bool swap : {false, true}) {
    for (InjectIo io : {InjectIo::PerArray, InjectIo::Shared}) {
      LrttRig rig = filled(7, 11, 3, swap);
      rig.params.inject_io = io;
      const Mat a = rig.a(), b = rig.b(), w = rig.w();
      rig.build();
      rig.setW(w);
      rig.setFactors(a, b);
      const Mat in = randomMat(5, 11, 1.0f, 4);
      const Mat grad = randomMat(5, 7, 1.0f, 5);
      const Mat y = rig.forward(in), dx = rig.backward(grad), effective = rig.effective();
      const std::vector<double> ab = adapterProduct(rig);
      const double alpha = double(rig.device->settings().alpha);
      // |A| |B| bounds |A B| from above, so the sum of magnitudes may be taken term by term.
      const double eps = double(std::numeric_limits<float>::epsilon());
      std::vector<double> magnitude(ab.size());
      for (int64_t i = 0; i < 7; ++i) {
        for (int64_t j = 0; j < 11; ++j) {
          double sum = 0.0;
          for (int64_t k = 0; k < 3; ++k) {
            sum += std::fabs(swap ? double(a(j, k)) * double(b(k, i))
                                  : double(a(i, k)) * double(b(k, j)));
          }
          magnitude[size_t(i * 11 + j)] = std::fabs(double(w(i, j))) + alpha * sum;
        }
      }
      const auto effectiveAt = [&](int64_t i, int64_t j) {
        return double(w(i, j)) + alpha * ab[size_t(i * 11 + j)];
      };
      for (int64_t s = 0; s < 5; ++s) {
        for (int64_t i = 0; i < 7; ++i) {
          double exact = 0.0, bound = 0.0;
          for (int64_t j = 0; j < 11; ++j) {
            exact += effectiveAt(i, j) * double(in(s, j));
            bound += magnitude[size_t(i * 11 + j)] * std::fabs(double(in(s, j)));
          }
          EXPECT_LE(std::fabs(double(y(s, i)) - exact), 4.0 * eps * 14.0 * bound);
        }
        for (int64_t j = 0; j < 11; ++j) {
          double exact = 0.0, bound = 0.0;
          for (int64_t i = 0; i < 7; ++i) {
            exact += effectiveAt(i, j) * double(grad(s, i));
            bound += magnitude[size_t(i * 11 + j)] * std::fabs(double(grad(s, i)));
          }
          EXPECT_LE(std::fabs(double(dx(s, j)) - exact), 4.0 * eps * 14.0 * bound);
        }
      }
      for (int64_t i = 0; i < 7; ++i) {
        for (int64_t j = 0; j < 11; ++j) {
          EXPECT_NEAR(double(effective(i, j)), effectiveAt(i, j),
                      20.0 * eps * magnitude[size_t(i * 11 + j)]);
        }
      }
    }
  }
}

TEST(LrttRead, WithoutInjectionTheVisibleArrayAloneIsRead) {
  LrttRig rig(7, 11, 3);
  rig.params.forward_inject = false;
  rig.build();
  rig.setW(randomMat(7, 11, 0.3f, 1));
  const Mat in = randomMat(5, 11, 1.0f, 4), grad = randomMat(5, 7, 1.0f, 5);
  const Mat y = rig.forward(in), dx = rig.backward(grad);
  rig.setFactors(randomMat(7, 3, 0.2f, 2), randomMat(3, 11, 0.4f, 3));
  EXPECT_TRUE(sameBits(rig.forward(in), y));
  EXPECT_TRUE(sameBits(rig.backward(grad), dx));
  EXPECT_TRUE(sameBits(rig.effective(), rig.w()));
}

// Variance over N = 1e5 reads of the same sample: its own relative deviation is sqrt(2 / N) = 0.45
// %.
TEST(LrttRead, Property18_NoiseComposition) {
  const int64_t repetitions = 100000;
  const double s = 0.05;
  for (InjectIo io : {InjectIo::PerArray, InjectIo::Shared}) {
    LrttRig rig(4, 5, 2);
    rig.params.inject_io = io;
    rig.params.lora_alpha = 1.5f;
    rig.forwardIo = noisyIo(float(s));
    rig.build();
    const Mat a = randomMat(4, 2, 0.8f, 2);
    rig.setW(randomMat(4, 5, 0.3f, 1));
    rig.setFactors(a, randomMat(2, 5, 0.4f, 3));
    Mat in(repetitions, 5);
    const Mat sample = randomMat(1, 5, 0.5f, 4);
    for (int64_t r = 0; r < repetitions; ++r) {
      for (int64_t j = 0; j < 5; ++j) in(r, j) = sample(0, j);
    }
    const Mat y = rig.forward(in);
    for (int64_t i = 0; i < 4; ++i) {
      double mean = 0.0, square = 0.0, row = 0.0;
      for (int64_t r = 0; r < repetitions; ++r) mean += double(y(r, i)) / double(repetitions);
      for (int64_t r = 0; r < repetitions; ++r) {
        square += (double(y(r, i)) - mean) * (double(y(r, i)) - mean) / double(repetitions);
      }
      for (int64_t k = 0; k < 2; ++k) row += double(a(i, k)) * double(a(i, k));
      const double expected =
          io == InjectIo::Shared ? s * s : s * s * (1.0 + 1.5 * 1.5 * (1.0 + row));
      EXPECT_NEAR(square / expected, 1.0, 0.02) << "output " << i << ", io " << int(io);
    }
  }
}

TEST(LrttRead, GatesRouteComponentsAndTheirGradientIsExact) {
  LrttRig rig = filled(7, 11, 3, false);
  const int64_t m = 4;
  const Mat in = randomMat(m, 11, 1.0f, 4), grad = randomMat(m, 7, 1.0f, 5);
  Mat gate = randomMat(m, 3, 1.0f, 6);
  const Mat a = rig.a(), b = rig.b(), w = rig.w();
  const double alpha = double(rig.device->settings().alpha);
  Mat y(m, 7), read(m, 3), dx(m, 11), gateGradient(m, 3);
  rig.device->adapter()->forwardGated(rig.context, in.view(), gate.view(), y.view(), read.view(),
                                      rig.counters);
  rig.device->adapter()->backwardGated(rig.context, grad.view(), gate.view(), read.view(),
                                       dx.view(), gateGradient.view(), rig.counters);
  for (int64_t s = 0; s < m; ++s) {
    std::vector<double> g(3), e(3);
    for (int64_t k = 0; k < 3; ++k) {
      for (int64_t j = 0; j < 11; ++j) g[size_t(k)] += double(b(k, j)) * double(in(s, j));
      for (int64_t i = 0; i < 7; ++i) e[size_t(k)] += double(a(i, k)) * double(grad(s, i));
      EXPECT_NEAR(double(gateGradient(s, k)), alpha * g[size_t(k)] * e[size_t(k)], 1e-5);
      EXPECT_NEAR(double(read(s, k)), g[size_t(k)], 1e-5);
    }
    for (int64_t i = 0; i < 7; ++i) {
      double exact = 0.0;
      for (int64_t j = 0; j < 11; ++j) exact += double(w(i, j)) * double(in(s, j));
      for (int64_t k = 0; k < 3; ++k)
        exact += alpha * double(a(i, k)) * double(gate(s, k)) * g[size_t(k)];
      EXPECT_NEAR(double(y(s, i)), exact, 1e-5);
    }
    for (int64_t j = 0; j < 11; ++j) {
      double exact = 0.0;
      for (int64_t i = 0; i < 7; ++i) exact += double(w(i, j)) * double(grad(s, i));
      for (int64_t k = 0; k < 3; ++k)
        exact += alpha * double(b(k, j)) * double(gate(s, k)) * e[size_t(k)];
      EXPECT_NEAR(double(dx(s, j)), exact, 1e-5);
    }
  }
  // A gate of ones is no gate; the update of a gated sample is that of gated projections.
  const Mat plain = rig.forward(in);
  for (float &value : gate.v) value = 1.0f;
  rig.device->adapter()->forwardGated(rig.context, in.view(), gate.view(), y.view(), read.view(),
                                      rig.counters);
  EXPECT_TRUE(sameBits(y, plain));
}

TEST(LrttRead, GatesNeedSomethingToActOn) {
  LrttRig rig(7, 11, 3);
  rig.params.inject_io = InjectIo::Shared;
  rig.build();
  Mat in(1, 11), gate(1, 3), y(1, 7), read(1, 3);
  const auto call = [&] {
    rig.device->adapter()->forwardGated(rig.context, in.view(), gate.view(), y.view(), read.view(),
                                        rig.counters);
  };
  EXPECT_THROW(call(), ConfigError);
  rig.params.rank = 0;
  rig.build();
  EXPECT_EQ(rig.device->adapter(), nullptr);
}

TEST(LrttRead, RankZeroIsTheVisibleArrayAlone) {
  LrttRig rig(5, 6, 0);
  rig.build();
  rig.setW(randomMat(5, 6, 0.3f, 1));
  const Mat before = rig.w();
  const Mat in = randomMat(3, 6, 1.0f, 4), grad = randomMat(3, 5, 1.0f, 5);
  EXPECT_TRUE(sameBits(rig.effective(), before));
  rig.learn(in, grad, 0.01f);
  rig.endMiniBatch();
  EXPECT_FALSE(sameBits(rig.w(), before));
  EXPECT_EQ(rig.device->adapter(), nullptr);
  EXPECT_THROW(rig.device->factors(), ConfigError);
  EXPECT_THROW(rig.device->transfers(), ConfigError);
}

}  // namespace
}  // namespace pulsora
