#include "lrtt/step_limit.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include "lrtt/lrtt_test_util.h"
#include "tile/tile.h"

namespace pulsora {
namespace {

// in W^T, or in W, in double precision.
std::vector<double> projected(const Mat &in, const Mat &w, bool transposed) {
  const int64_t lines = transposed ? w.cols : w.rows;
  std::vector<double> out(size_t(in.rows * lines));
  for (int64_t s = 0; s < in.rows; ++s) {
    for (int64_t k = 0; k < lines; ++k) {
      for (int64_t j = 0; j < in.cols; ++j)
        out[size_t(s * lines + k)] += double(in(s, j)) * double(transposed ? w(j, k) : w(k, j));
    }
  }
  return out;
}

double squareOf(const Mat &m, int64_t row) {
  double sum = 0.0;
  for (int64_t j = 0; j < m.cols; ++j) sum += double(m(row, j)) * double(m(row, j));
  return sum;
}

double squareOf(const std::vector<double> &v, int64_t row, int64_t cols) {
  double sum = 0.0;
  for (int64_t j = 0; j < cols; ++j) sum += v[size_t(row * cols + j)] * v[size_t(row * cols + j)];
  return sum;
}

// An exact update with a limit is one with g and e of each sample times min(1, limit / response).
TEST(LrttStepLimit, ScalesGAndEOfEachSample) {
  const int64_t rank = 3, m = 30;
  for (const bool swap : {false, true}) {
    for (const Projection projection : {Projection::Analog, Projection::Exact}) {
      LrttRig rig(7, 11, rank);
      rig.params.swap_xd = swap;
      rig.params.projection = projection;
      rig.params.ab_step_limit = 0.8f;
      rig.params.a_lr = 0.7f;
      rig.params.b_lr = 0.4f;
      rig.update.pulse_type = PulseType::None;
      rig.build();
      Mat x = randomMat(m, 11, 1.0f, 4), d = randomMat(m, 7, 1.0f, 5);
      for (int64_t j = 0; j < 11; ++j) x(3, j) = 0.0f;
      for (int64_t i = 0; i < 7; ++i) d(4, i) = 0.0f;
      rig.setFactors(randomMat(swap ? 11 : 7, rank, 0.4f, 2),
                     randomMat(rank, swap ? 7 : 11, 0.4f, 3));
      const Mat a = rig.a(), b = rig.b(), &in = swap ? d : x, &out = swap ? x : d;
      const std::vector<double> g = projected(in, b, false), e = projected(out, a, true);
      const double lr = 0.1, alpha = double(rig.device->settings().alpha);
      std::vector<double> nextA(a.v.begin(), a.v.end()), nextB(b.v.begin(), b.v.end());
      int limited = 0, free = 0;
      for (int64_t s = 0; s < m; ++s) {
        const double ofX = squareOf(in, s), ofD = squareOf(out, s);
        if (ofX == 0.0 || ofD == 0.0) continue;
        const double response = alpha * (double(0.7f) * squareOf(g, s, rank) / ofX +
                                         double(0.4f) * squareOf(e, s, rank) / ofD);
        const double factor = std::min(1.0, double(0.8f) / response);
        ++(factor < 1.0 ? limited : free);
        for (int64_t k = 0; k < rank; ++k) {
          for (int64_t i = 0; i < out.cols; ++i)
            nextA[size_t(i * rank + k)] -=
                lr * double(0.7f) * factor * g[size_t(s * rank + k)] * double(out(s, i));
          for (int64_t j = 0; j < in.cols; ++j)
            nextB[size_t(k * in.cols + j)] -=
                lr * double(0.4f) * factor * e[size_t(s * rank + k)] * double(in(s, j));
        }
      }
      EXPECT_GT(limited, 3);
      EXPECT_GT(free, 3);
      rig.learn(x, d, float(lr));
      const Mat toA = rig.a(), toB = rig.b();
      for (size_t i = 0; i < nextA.size(); ++i) EXPECT_NEAR(double(toA.v[i]), nextA[i], 1e-5);
      for (size_t i = 0; i < nextB.size(); ++i) EXPECT_NEAR(double(toB.v[i]), nextB[i], 1e-5);
    }
  }
}

// What the limit limits: (y' - y) d / -(lr |x|^2 |d|^2) of a sample after its own small update,
// which is 1 for plain SGD.
TEST(LrttStepLimit, BoundsTheMovementOfASamplesOutput) {
  const auto response = [](float limit, float size) {
    LrttRig rig(7, 11, 3);
    rig.params.ab_lr_scale = LrScale::Matched;
    rig.params.ab_step_limit = limit;
    rig.update.pulse_type = PulseType::None;
    rig.build();
    rig.setFactors(randomMat(7, 3, size, 2), randomMat(3, 11, size, 3));
    const Mat x = randomMat(1, 11, 1.0f, 4), d = randomMat(1, 7, 1.0f, 5);
    const float lr = 1e-4f;
    const Mat before = rig.effective();
    rig.learn(x, d, lr);
    const Mat after = rig.effective();
    double moved = 0.0;
    for (int64_t i = 0; i < 7; ++i) {
      for (int64_t j = 0; j < 11; ++j)
        moved += double(d(0, i)) * (double(after(i, j)) - double(before(i, j))) * double(x(0, j));
    }
    return moved / (-double(lr) * squareOf(x, 0) * squareOf(d, 0));
  };
  // Roundings of weights of size 1 to 6e-8, beside movements of 1e-4.
  const double large = response(0.0f, 3.0f), small = response(0.0f, 0.3f);
  EXPECT_GT(large, 2.0);
  EXPECT_LT(small, 0.5);
  EXPECT_NEAR(response(1.0f, 3.0f), 1.0, 0.02);
  EXPECT_NEAR(response(2.0f, 3.0f), 2.0, 0.04);
  EXPECT_EQ(response(1.0f, 0.3f), small);
}

TEST(LrttStepLimit, NoiseOfSamplesWithoutGradientMovesNothing) {
  LrttRig rig(7, 11, 3);
  rig.backwardIo = noisyIo(0.5f);
  rig.params.ab_step_limit = 1.0f;
  rig.build();
  rig.setFactors(randomMat(7, 3, 0.4f, 2), randomMat(3, 11, 0.4f, 3));
  const Mat b = rig.b(), x = randomMat(20, 11, 1.0f, 4), d(20, 7);
  rig.learn(x, d, 0.1f);
  EXPECT_TRUE(sameBits(rig.b(), b));
  rig.params.ab_step_limit = 0.0f;
  rig.build();
  rig.setFactors(randomMat(7, 3, 0.4f, 2), b);
  rig.learn(x, d, 0.1f);
  EXPECT_FALSE(sameBits(rig.b(), b));
}

LRTTParams noisyLrtt(FactorUpdate how, bool swap) {
  LRTTParams p = plainLrtt();
  p.rank = 3;
  p.transfer_every = 30;
  p.visible = noisyCells(0.0005f);
  p.fast = noisyCells(0.001f);
  p.swap_xd = swap;
  p.ab_update = how;
  p.ab_step_limit = 0.5f;
  return p;
}

TEST(LrttStepLimit, Property37_CutsOfABatchLeaveTheBits) {
  const Mat in = randomMat(100, 10, 1.0f, 4), grad = randomMat(100, 12, 1.0f, 5);
  const std::vector<std::vector<int64_t>> cuts = {{100}, {1, 2, 3, 64, 30}, {29, 1, 1, 69}};
  for (const FactorUpdate how : {FactorUpdate::Sample, FactorUpdate::Accumulated}) {
    for (const bool swap : {false, true}) {
      std::vector<Mat> results;
      for (const std::vector<int64_t> &cut : cuts) {
        LrttRig rig(12, 10, 3);
        rig.params = noisyLrtt(how, swap);
        rig.forwardIo = rig.backwardIo = IOParameters{};
        rig.context.cpu.threads = results.empty() ? 1 : 3;
        rig.build();
        int64_t start = 0;
        for (const int64_t count : cut) {
          rig.learn(in.rowsFrom(start, count), grad.rowsFrom(start, count), 0.05f);
          start += count;
        }
        rig.endMiniBatch();
        if (results.empty()) results = {rig.w(), rig.a(), rig.b()};
        EXPECT_TRUE(sameBits(rig.w(), results[0]));
        EXPECT_TRUE(sameBits(rig.a(), results[1]));
        EXPECT_TRUE(sameBits(rig.b(), results[2]));
      }
    }
  }
}

// A mini-batch in two updates, then the next.
void step(Tile &tile, uint64_t n) {
  const Mat in = randomMat(7, 10, 1.0f, 100 + n), grad = randomMat(7, 12, 1.0f, 200 + n);
  tile.update(in.view(), grad.view(), 0.05f, n % 2 == 1 ? BatchEnd::Now : BatchEnd::Later);
}

TEST(LrttStepLimit, Property38_ResumeWithinAMiniBatch) {
  TileConfig config;
  config.compound = noisyLrtt(FactorUpdate::Sample, false);
  Tile whole(12, 10, config, 3, 1);
  for (uint64_t n = 0; n < 5; ++n) step(whole, n);
  Tile resumed = Tile::fromState(whole.state(), Context{});
  for (uint64_t n = 5; n < 12; ++n) {
    step(whole, n);
    step(resumed, n);
  }
  Mat one(12, 10), other(12, 10);
  whole.getWeights(one.view());
  resumed.getWeights(other.view());
  EXPECT_TRUE(sameBits(one, other));
  EXPECT_TRUE(whole.statistics() == resumed.statistics());
}

TEST(LrttStepLimit, BadLimitsAreRefused) {
  for (const float bad :
       {-1.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    LRTTParams p = plainLrtt();
    p.rank = 4;
    p.ab_step_limit = bad;
    try {
      LRTTSettings(p, UpdateParameters{}, 6, 8);
      FAIL() << bad;
    } catch (const ConfigError &error) {
      EXPECT_NE(std::string(error.what()).find("lrtt.ab_step_limit is"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find("0 for no limit"), std::string::npos);
    }
  }
}

TEST(LrttStepLimit, ExplainTellsWhatIsLimited) {
  LrttRig rig(7, 11, 3);
  rig.params.ab_step_limit = 3.0f;
  rig.build();
  rig.setFactors(Mat(7, 3), randomMat(3, 11, 0.4f, 3));
  const Mat x = randomMat(30, 11, 1.0f, 4), d = randomMat(30, 7, 1.0f, 5);
  const std::vector<double> g = projected(x, rig.b(), false);
  const double alpha = double(rig.device->settings().alpha);
  int limited = 0;
  double sum = 0.0;
  for (int64_t s = 0; s < 30; ++s) {
    const double response = alpha * alpha * squareOf(g, s, 3) / squareOf(x, s);  // A is 0
    limited += response > 3.0 ? 1 : 0;
    sum += std::min(1.0, 3.0 / response);
  }
  ASSERT_GT(limited, 0);
  ASSERT_LT(limited, 30);
  const Value::Map told = rig.device->explain(rig.context, x.view(), d.view(), 0.1f);
  EXPECT_EQ(*told.at("ab_step_limit").real(), 3.0);
  EXPECT_NEAR(*told.at("limited_samples").real(), limited / 30.0, 1e-9);
  EXPECT_NEAR(*told.at("mean_step_factor").real(), sum / 30.0, 1e-5);

  rig.params.ab_step_limit = 0.0f;
  rig.build();
  const Value::Map free = rig.device->explain(rig.context, x.view(), d.view(), 0.1f);
  EXPECT_EQ(*free.at("ab_step_limit").real(), 0.0);
  EXPECT_EQ(free.count("limited_samples"), 0u);
}

}  // namespace
}  // namespace pulsora
