#include <cmath>
#include <gtest/gtest.h>

#include "lrtt/lrtt_test_util.h"

namespace pulsora {
namespace {

constexpr int64_t kOut = 6, kIn = 12, kBatch = 24;
constexpr int kSteps = 20;
constexpr double kLr = 0.02;

// Gradient of |x W^T - t|^2 / 2 per sample, at W.
Mat residual(const Mat &w, const Mat &in, const Mat &target) {
  Mat out(kBatch, kOut);
  for (int64_t s = 0; s < kBatch; ++s) {
    for (int64_t i = 0; i < kOut; ++i) {
      double y = -double(target(s, i));
      for (int64_t j = 0; j < kIn; ++j) y += double(w(i, j)) * double(in(s, j));
      out(s, i) = float(y);
    }
  }
  return out;
}

std::vector<Mat> plainSgd(const Mat &in, const Mat &target) {
  Mat w(kOut, kIn);
  std::vector<Mat> path;
  for (int step = 0; step < kSteps; ++step) {
    const Mat grad = residual(w, in, target);
    for (int64_t i = 0; i < kOut; ++i) {
      for (int64_t j = 0; j < kIn; ++j) {
        double sum = 0.0;
        for (int64_t s = 0; s < kBatch; ++s) sum += double(grad(s, i)) * double(in(s, j));
        w(i, j) -= float(kLr * sum);
      }
    }
    path.push_back(w);
  }
  return path;
}

// A transfer after every step on a linear regression, alpha matched. Then W_t is linear in the
// sketches B^T B, which are independent with mean I / alpha^2, so that E W_t is the path of SGD
// (the loss itself is higher by the variance of the sketch, (x + 1) / K). Measured along that path,
// 200 seeds, 5 sigma.
TEST(LrttLearning, Property16_EffectiveLearningRate) {
  const int seeds = 200;
  const Mat in = randomMat(kBatch, kIn, 1.0f / std::sqrt(float(kBatch)), 4);
  const Mat target = randomMat(kBatch, kOut, 1.0f, 5);
  const std::vector<Mat> sgd = plainSgd(in, target);
  std::vector<double> sum(kSteps), square(kSteps);
  for (int seed = 0; seed < seeds; ++seed) {
    LrttRig rig(kOut, kIn, 3);
    rig.seed = uint64_t(seed);
    rig.params.transfer_every = kBatch;
    rig.update.pulse_type = PulseType::None;
    rig.build();
    for (size_t step = 0; step < kSteps; ++step) {
      rig.learn(in, residual(rig.effective(), in, target), float(kLr));
      rig.endMiniBatch();
      const Mat w = rig.effective();
      double along = 0.0, length = 0.0;
      for (size_t i = 0; i < w.v.size(); ++i) {
        along += double(w.v[i]) * double(sgd[step].v[i]);
        length += double(sgd[step].v[i]) * double(sgd[step].v[i]);
      }
      sum[step] += along / length;
      square[step] += along / length * along / length;
    }
    EXPECT_EQ(rig.transfers(), uint64_t(kSteps));
  }
  for (size_t step = 0; step < kSteps; ++step) {
    const double mean = sum[step] / seeds;
    const double error = std::sqrt((square[step] / seeds - mean * mean) / seeds);
    EXPECT_LE(std::fabs(mean - 1.0), 5.0 * error) << "step " << step;
    EXPECT_LE(error, 0.04);  // a wrong power of alpha or K would be far outside
  }
}

}  // namespace
}  // namespace pulsora
