#include "lrtt/reinit.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "linalg/initialise.h"
#include "lrtt/lrtt_test_util.h"

namespace pulsora {
namespace {

double normalCdf(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

// 4000 draws of B; g = 0.5.
TEST(LrttReinit, Property15_SketchLaw) {
  const int64_t k = 8, x = 40, draws = 4000;
  LRTTParams p = plainLrtt();
  p.rank = int(k);
  const LRTTSettings s(p, UpdateParameters{}, 8, x);
  const Context context;
  const Mat gradient = randomMat(3, x, 1.0f, 9);
  double gradientSquare = 0.0;
  for (float v : gradient.v) gradientSquare += double(v) * double(v);
  std::vector<double> gram(size_t(x * x));
  double deviation = 0.0;
  Mat b(k, x);
  for (int64_t n = 0; n < draws; ++n) {
    drawNormalRows(context, TileKeys{5, 0}.of(LRTTAdapter::kSlotB, Role::Start), uint64_t(n),
                   s.deviation, b.view());
    for (int64_t i = 0; i < x; ++i) {
      for (int64_t j = 0; j < x; ++j) {
        double sum = 0.0;
        for (int64_t c = 0; c < k; ++c) sum += double(b(c, i)) * double(b(c, j));
        gram[size_t(i * x + j)] += sum / double(draws);
      }
    }
    for (int64_t r = 0; r < 3; ++r) {  // rows of G S - G, with S = alpha^2 B^T B
      std::vector<double> inner(static_cast<size_t>(k));
      for (int64_t c = 0; c < k; ++c) {
        for (int64_t j = 0; j < x; ++j)
          inner[size_t(c)] += double(b(c, j)) * double(gradient(r, j));
      }
      for (int64_t j = 0; j < x; ++j) {
        double sketched = 0.0;
        for (int64_t c = 0; c < k; ++c) sketched += double(b(c, j)) * inner[size_t(c)];
        const double rest = double(s.alpha) * double(s.alpha) * sketched - double(gradient(r, j));
        deviation += rest * rest / double(draws);
      }
    }
  }
  const double expected = 2.0 * 0.25 * double(k) / double(x);
  double trace = 0.0;
  for (int64_t i = 0; i < x; ++i) {
    trace += gram[size_t(i * x + i)] / double(x);
    // A diagonal element is chi-squared with K * draws degrees of freedom; off it, a product of
    // normals.
    const double se = expected / std::sqrt(double(k * draws));
    EXPECT_NEAR(gram[size_t(i * x + i)], expected, 5.0 * std::sqrt(2.0) * se);
    for (int64_t j = 0; j < i; ++j) EXPECT_NEAR(gram[size_t(i * x + j)], 0.0, 5.0 * se);
  }
  EXPECT_NEAR(trace / expected, 1.0, 0.02);
  EXPECT_NEAR(deviation / gradientSquare / (double(x + 1) / double(k)), 1.0, 0.02);
}

TEST(LrttReinit, Property27_Statistics) {
  LrttRig rig(20, 1000, 16);
  rig.build();
  const double n = 16000.0, sd = double(rig.device->settings().deviation);
  const Mat first = rig.b();
  rig.setFactors(randomMat(20, 16, 0.1f, 1), first);
  rig.device->adapter()->transfer(rig.context);
  const Mat second = rig.b();
  for (float value : rig.a().v) EXPECT_EQ(value, 0.0f);
  double cross = 0.0;
  for (const Mat *b : {&first, &second}) {
    double mean = 0.0, variance = 0.0;
    for (float value : b->v) mean += double(value) / n;
    for (float value : b->v) variance += (double(value) - mean) * (double(value) - mean) / n;
    EXPECT_LE(std::fabs(mean), 5.0 * sd / std::sqrt(n));
    EXPECT_LE(std::fabs(variance / (sd * sd) - 1.0), 5.0 * std::sqrt(2.0 / n));
    std::vector<float> sorted = b->v;
    std::sort(sorted.begin(), sorted.end());
    double distance = 0.0;
    for (size_t i = 0; i < sorted.size(); ++i) {
      const double cdf = normalCdf(double(sorted[i]) / sd);
      distance =
          std::max({distance, std::fabs(cdf - double(i) / n), std::fabs(cdf - double(i + 1) / n)});
    }
    EXPECT_LE(distance * std::sqrt(n), 2.69);  // Kolmogorov-Smirnov at p = 1e-6
  }
  for (size_t i = 0; i < first.v.size(); ++i)
    cross += double(first.v[i]) * double(second.v[i]) / (n * sd * sd);
  EXPECT_LE(std::fabs(cross), 5.0 / std::sqrt(n));
}

TEST(LrttReinit, Property28_Bounds) {
  LrttRig rig(20, 1000, 16);
  ConstantStep::Params cells = idealCells(0.001f);
  cells.w_max = 0.025f;
  cells.w_min = -0.025f;
  rig.params.fast = cells;
  rig.build();
  const double sd = double(rig.device->settings().deviation);
  const Mat b = rig.b();
  double clipped = 0.0;
  for (float value : b.v) {
    ASSERT_LE(std::fabs(value), 0.025f);
    clipped += std::fabs(value) == 0.025f;
  }
  const double share = 2.0 * normalCdf(-0.025 / sd), n = 16000.0;
  EXPECT_NEAR(clipped / n, share, 5.0 * std::sqrt(share * (1.0 - share) / n));
}

TEST(LrttReinit, Property29_Orthogonal) {
  for (int rank : {1, 7, 32}) {
    LrttRig rig(40, 32, rank);
    rig.params.reinit = Reinit::Orthogonal;
    rig.build();
    const double square = 2.0 * 0.25;
    const Mat first = rig.b();
    rig.device->adapter()->transfer(rig.context);
    const Mat second = rig.b();
    EXPECT_FALSE(sameBits(first, second));
    for (const Mat *b : {&first, &second}) {
      for (int64_t i = 0; i < rank; ++i) {
        for (int64_t j = 0; j < rank; ++j) {
          double dot = 0.0;
          for (int64_t c = 0; c < 32; ++c) dot += double((*b)(i, c)) * double((*b)(j, c));
          EXPECT_NEAR(dot, i == j ? square : 0.0, 1e-5 * square);
        }
      }
    }
  }
}

TEST(LrttReinit, OtherKindsDoWhatTheySay) {
  const Mat a = randomMat(6, 2, 0.2f, 2), b = randomMat(2, 7, 0.2f, 3);
  for (Reinit kind : {Reinit::KeepB, Reinit::Decay, Reinit::None}) {
    LrttRig rig(6, 7, 2);
    rig.params.reinit = kind;
    rig.params.reinit_decay = 0.75f;
    rig.build();
    rig.setFactors(a, b);
    rig.device->adapter()->transfer(rig.context);
    Mat expectedA = kind == Reinit::None ? a : Mat(6, 2), expectedB = b;
    if (kind == Reinit::Decay) {
      for (float &value : expectedB.v) value *= 0.75f;
    }
    EXPECT_EQ(rig.a().v, expectedA.v);
    EXPECT_EQ(rig.b().v, expectedB.v);
  }
}

TEST(LrttReinit, SvdTakesTheDirectionsHandedIn) {
  LrttRig rig(6, 7, 2);
  rig.params.reinit = Reinit::Svd;
  rig.build();
  const Mat in = randomMat(3, 7, 1.0f, 4), grad = randomMat(3, 6, 1.0f, 5);
  EXPECT_THROW(rig.learn(in, grad, 0.1f), ConfigError);
  EXPECT_THROW(rig.device->factors().setReinitVectors(rig.context, in.view()), InputError);
  const Mat vectors = randomMat(2, 7, 3.0f, 6);
  rig.device->factors().setReinitVectors(rig.context, vectors.view());
  for (int round = 0; round < 2; ++round) {
    const Mat b = rig.b();
    for (int64_t k = 0; k < 2; ++k) {
      double norm = 0.0, dot = 0.0, length = 0.0;
      for (int64_t j = 0; j < 7; ++j) {
        norm += double(b(k, j)) * double(b(k, j));
        length += double(vectors(k, j)) * double(vectors(k, j));
        dot += double(b(k, j)) * double(vectors(k, j));
      }
      EXPECT_NEAR(norm, 0.5, 1e-6);
      EXPECT_NEAR(dot / std::sqrt(norm * length), 1.0, 1e-6);
    }
    rig.learn(in, grad, 0.1f);
    rig.device->adapter()->transfer(rig.context);
  }
  LrttRig other(6, 7, 2);
  other.build();
  EXPECT_THROW(other.device->factors().setReinitVectors(other.context, vectors.view()),
               ConfigError);
}

TEST(LrttReinit, PulsedWritesEndWithinHalfAStep) {
  LrttRig rig(30, 50, 4), direct(30, 50, 4);
  rig.params.reinit_write = ReinitWrite::Pulsed;
  for (LrttRig *each : {&rig, &direct}) {
    each->params.fast = idealCells(0.002f);
    each->build();
    each->setFactors(randomMat(30, 4, 0.5f, 2), randomMat(4, 50, 0.1f, 3));
    each->device->adapter()->transfer(each->context);
  }
  const uint64_t pulses = rig.device->factors().b().pulseCount(rig.context);
  EXPECT_GT(pulses, 0u);
  EXPECT_EQ(direct.device->factors().b().pulseCount(direct.context), 0u);
  const Mat a = rig.a(), b = rig.b(), target = direct.b();
  for (float value : a.v) EXPECT_LE(std::fabs(value), 0.001001f);
  for (size_t i = 0; i < b.v.size(); ++i) EXPECT_LE(std::fabs(b.v[i] - target.v[i]), 0.001001f);
}

TEST(LrttReinit, SettingWeightsClearsTheAdapter) {
  LrttRig rig(6, 7, 2);
  rig.build();
  rig.setFactors(randomMat(6, 2, 0.2f, 2), randomMat(2, 7, 0.2f, 3));
  const Mat w = randomMat(6, 7, 0.2f, 4);
  rig.device->setWeights(rig.context, w.view(), rig.counters);
  EXPECT_TRUE(sameBits(rig.effective(), w));
  for (float value : rig.a().v) EXPECT_EQ(value, 0.0f);
}

}  // namespace
}  // namespace pulsora
