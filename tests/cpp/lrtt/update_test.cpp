#include <cmath>
#include <functional>
#include <gtest/gtest.h>

#include "lrtt/lrtt_test_util.h"
#include "pulses/pulse_trains.h"

namespace pulsora {
namespace {

// out[k, l] = sum over samples of left(s, k) right(s, l), in double precision.
std::vector<double> outer(const Mat &left, const Mat &right) {
  std::vector<double> out(size_t(left.cols * right.cols));
  for (int64_t s = 0; s < left.rows; ++s) {
    for (int64_t k = 0; k < left.cols; ++k) {
      for (int64_t l = 0; l < right.cols; ++l) {
        out[size_t(k * right.cols + l)] += double(left(s, k)) * double(right(s, l));
      }
    }
  }
  return out;
}

Mat project(const Mat &in, const Mat &weights, bool transposed) {
  Mat out(in.rows, transposed ? weights.cols : weights.rows);
  for (int64_t s = 0; s < in.rows; ++s) {
    for (int64_t k = 0; k < out.cols; ++k) {
      double sum = 0.0;
      for (int64_t j = 0; j < in.cols; ++j)
        sum += double(in(s, j)) * double(transposed ? weights(j, k) : weights(k, j));
      out(s, k) = float(sum);
    }
  }
  return out;
}

void expectStep(const Mat &before, const Mat &after, const std::vector<double> &direction,
                double lr) {
  double largest = 0.0;
  for (double value : direction) largest = std::max(largest, std::fabs(lr * value));
  for (float value : before.v) largest = std::max(largest, double(std::fabs(value)));
  for (size_t i = 0; i < direction.size(); ++i) {
    EXPECT_NEAR(double(after.v[i]), double(before.v[i]) - lr * direction[i], 1e-6 * largest);
  }
}

TEST(LrttUpdate, Property12_DigitalLimit) {
  for (Projection projection : {Projection::Analog, Projection::Exact, Projection::Reuse}) {
    for (bool swap : {false, true}) {
      for (LrScale scale : {LrScale::Alpha, LrScale::None}) {
        LrttRig rig(7, 11, 3);
        rig.params.projection = projection;
        rig.params.swap_xd = swap;
        rig.params.ab_lr_scale = scale;
        rig.update.pulse_type = PulseType::None;
        rig.build();
        const Mat in = randomMat(5, 11, 1.0f, 4), grad = randomMat(5, 7, 1.0f, 5);
        rig.setFactors(randomMat(swap ? 11 : 7, 3, 0.2f, 2), randomMat(3, swap ? 7 : 11, 0.4f, 3));
        const Mat a = rig.a(), b = rig.b(), w = rig.w();
        if (projection == Projection::Reuse) {
          rig.forward(in);
          rig.backward(grad);
        }
        rig.learn(in, grad, 0.1f);
        const Mat &inputs = swap ? grad : in, &outputs = swap ? in : grad;
        const double eta =
            0.1 * (scale == LrScale::Alpha ? double(rig.device->settings().alpha) : 1.0);
        // Both directions from the *old* arrays.
        expectStep(a, rig.a(), outer(outputs, project(inputs, b, false)), eta);
        expectStep(b, rig.b(), outer(project(outputs, a, true), inputs), eta);
        EXPECT_TRUE(sameBits(rig.w(), w));
      }
    }
  }
}

// L = |y - t|^2 / 2 over a batch, in double precision.
double loss(const Mat &w, const std::vector<double> &a, const std::vector<double> &b,
            const std::vector<double> &x, const Mat &target, double alpha, int64_t rank) {
  const int64_t d = w.rows, n = w.cols;
  double sum = 0.0;
  for (int64_t s = 0; s < target.rows; ++s) {
    for (int64_t i = 0; i < d; ++i) {
      double y = -double(target(s, i));
      for (int64_t j = 0; j < n; ++j) {
        double effective = double(w(i, j));
        for (int64_t k = 0; k < rank; ++k)
          effective += alpha * a[size_t(i * rank + k)] * b[size_t(k * n + j)];
        y += effective * x[size_t(s * n + j)];
      }
      sum += 0.5 * y * y;
    }
  }
  return sum;
}

std::vector<double> gradientOf(std::vector<double> at,
                               const std::function<double(const std::vector<double> &)> &f) {
  std::vector<double> gradient(at.size());
  const double h = 1e-4;
  for (size_t i = 0; i < at.size(); ++i) {
    const double here = at[i];
    at[i] = here + h;
    const double up = f(at);
    at[i] = here - h;
    gradient[i] = (up - f(at)) / (2.0 * h);
    at[i] = here;
  }
  return gradient;
}

// A -> s A, B -> t B, alpha -> alpha / (s t) with the matched learning rates: in exact arithmetic
// the effective weight takes the same path through updates, transfers and re-inits.
TEST(LrttUpdate, MatchedRatesMakeTheSizesOfTheFactorsAGauge) {
  const auto path = [](float alpha, float gain) {
    LrttRig rig(5, 9, 3);
    rig.update.pulse_type = PulseType::None;
    rig.params.projection = Projection::Exact;
    rig.params.ab_lr_scale = LrScale::Matched;
    rig.params.lora_alpha = alpha;
    rig.params.reinit_gain = gain;
    rig.params.reinit = Reinit::Decay;
    rig.params.transfer_every = 12;
    rig.build();
    rig.setW(randomMat(5, 9, 0.3f, 1));
    for (uint64_t step = 0; step < 10; ++step) {
      rig.learn(randomMat(4, 9, 1.0f, 10 + step), randomMat(4, 5, 0.3f, 50 + step), 0.05f);
      rig.endMiniBatch();
    }
    EXPECT_EQ(rig.transfers(), 3u);
    return rig.effective();
  };
  const Mat expected = path(1.3f, 0.5f);
  const Mat start = randomMat(5, 9, 0.3f, 1);
  for (const auto &[alpha, gain] :
       {std::pair{0.2f, 0.5f}, {1.3f, 2.0f}, {7.0f, 0.1f}, {-0.4f, 1.0f}}) {
    const Mat reached = path(alpha, gain);
    double difference = 0.0, moved = 0.0;
    for (size_t i = 0; i < expected.v.size(); ++i) {
      difference = std::max(difference, std::fabs(double(reached.v[i]) - double(expected.v[i])));
      moved = std::max(moved, std::fabs(double(expected.v[i]) - double(start.v[i])));
    }
    EXPECT_LT(difference, 1e-5 * moved) << "alpha " << alpha << ", gain " << gain;
    EXPECT_GT(moved, 0.1);
  }
}

TEST(LrttUpdate, Property13_GradientIdentity) {
  LrttRig rig(5, 6, 2);
  rig.update.pulse_type = PulseType::None;
  rig.build();
  rig.setW(randomMat(5, 6, 0.3f, 1));
  rig.setFactors(randomMat(5, 2, 0.2f, 2), randomMat(2, 6, 0.4f, 3));
  const Mat a = rig.a(), b = rig.b(), w = rig.w();
  const Mat in = randomMat(3, 6, 1.0f, 4), target = randomMat(3, 5, 1.0f, 5);
  const double alpha = double(rig.device->settings().alpha);
  Mat grad = rig.forward(in);
  for (size_t i = 0; i < grad.v.size(); ++i) grad.v[i] -= target.v[i];
  const Mat dx = rig.backward(grad);
  rig.learn(in, grad, 1.0f);

  const std::vector<double> a64(a.v.begin(), a.v.end()), b64(b.v.begin(), b.v.end()),
      x64(in.v.begin(), in.v.end());
  const auto byA =
      gradientOf(a64, [&](const auto &v) { return loss(w, v, b64, x64, target, alpha, 2); });
  const auto byB =
      gradientOf(b64, [&](const auto &v) { return loss(w, a64, v, x64, target, alpha, 2); });
  const auto byX =
      gradientOf(x64, [&](const auto &v) { return loss(w, a64, b64, v, target, alpha, 2); });
  expectStep(a, rig.a(), byA, 1.0);
  expectStep(b, rig.b(), byB, 1.0);
  expectStep(Mat(3, 6), dx, byX, -1.0);
}

// N = 2e4 samples, all the same, in one mini-batch: every one is projected with A = 0.
TEST(LrttUpdate, Property14_FirstStepAfterReinit) {
  const int64_t repetitions = 20000;
  LrttRig rig(3, 4, 2);
  const float dw = 0x1p-12f;
  rig.params.fast = idealCells(dw);
  rig.build();
  const Mat b = rig.b(), w = rig.w();
  const Mat x0 = randomMat(1, 4, 1.0f, 4), d0 = randomMat(1, 3, 1.0f, 5);
  Mat in(repetitions, 4), grad(repetitions, 3);
  for (int64_t s = 0; s < repetitions; ++s) {
    for (int64_t j = 0; j < 4; ++j) in(s, j) = x0(0, j);
    for (int64_t i = 0; i < 3; ++i) grad(s, i) = d0(0, i);
  }
  const float lr = 0.001f;
  rig.learn(in, grad, lr);
  EXPECT_TRUE(sameBits(rig.b(), b));
  EXPECT_TRUE(sameBits(rig.w(), w));

  const Mat g = project(x0, b, false), a = rig.a();
  const float eta = lr * rig.device->settings().lrOfA;
  float gMax = 0.0f, dMax = 0.0f;
  for (float v : g.v) gMax = std::max(gMax, std::fabs(v));
  for (float v : d0.v) dMax = std::max(dMax, std::fabs(v));
  const PulseTrainScale t = trainScale(rig.device->settings().fastUpdate, eta, dw, gMax, dMax);
  ASSERT_LE(t.strength, float(t.length));
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t k = 0; k < 2; ++k) {
      const double expected = -double(eta) * double(d0(0, i)) * double(g(0, k));
      const double p = double(t.xScale) * std::fabs(double(g(0, k))) * double(t.dScale) *
                       std::fabs(double(d0(0, i)));
      const double sd =
          double(dw) * std::sqrt(double(t.length) * p * (1.0 - p) / double(repetitions));
      EXPECT_NEAR(double(a(i, k)) / double(repetitions), expected, 5.0 * sd) << i << ", " << k;
    }
  }
}

TEST(LrttUpdate, Property19_LocalityBetweenTransfers) {
  LrttRig rig(12, 10, 3);
  rig.params.visible = noisyCells(0.001f);
  rig.params.fast = noisyCells(0.001f);
  rig.params.transfer_every = 30;
  rig.build();
  rig.setW(randomMat(12, 10, 0.1f, 1));
  const Mat w = rig.w(), b = rig.b();
  for (int step = 0; step < 2; ++step) {
    const Mat a = rig.a();
    rig.learn(randomMat(14, 10, 1.0f, 4), randomMat(14, 12, 1.0f, 5), 0.05f);
    rig.endMiniBatch();
    EXPECT_FALSE(sameBits(rig.a(), a));
    EXPECT_TRUE(sameBits(rig.w(), w));
  }
  EXPECT_FALSE(sameBits(rig.b(), b));
  rig.learn(randomMat(2, 10, 1.0f, 6), randomMat(2, 12, 1.0f, 7), 0.05f);
  EXPECT_EQ(rig.transfers(), 1u);
  EXPECT_FALSE(sameBits(rig.w(), w));
}

TEST(LrttUpdate, Property37_SplitInvariance) {
  const Mat in = randomMat(100, 10, 1.0f, 4), grad = randomMat(100, 12, 1.0f, 5);
  for (bool swap : {false, true}) {
    for (PulseType type : {PulseType::StochasticCompressed, PulseType::None}) {
      std::vector<Mat> results;
      const std::vector<std::vector<int64_t>> splits = {
          {100}, {1, 2, 3, 64, 30}, {29, 1, 1, 69}, {50, 50}};
      for (size_t i = 0; i < splits.size(); ++i) {
        LrttRig rig(12, 10, 3);
        rig.params.visible = noisyCells(0.0005f);
        rig.params.fast = noisyCells(0.001f);
        rig.params.swap_xd = swap;
        rig.params.transfer_every = 30;
        rig.update.pulse_type = type;
        rig.forwardIo = rig.backwardIo = IOParameters{};  // quantised and noisy projections
        rig.context.cpu.threads = i == 0 ? 1 : 3;
        rig.build();
        int64_t start = 0;
        for (int64_t count : splits[i]) {
          rig.learn(in.rowsFrom(start, count), grad.rowsFrom(start, count), 0.05f);
          start += count;
        }
        rig.endMiniBatch();
        EXPECT_EQ(rig.transfers(), 3u);
        if (i == 0) {
          results = {rig.w(), rig.a(), rig.b()};
          continue;
        }
        EXPECT_TRUE(sameBits(rig.w(), results[0])) << "split " << i << ", swap " << swap;
        EXPECT_TRUE(sameBits(rig.a(), results[1])) << "split " << i << ", swap " << swap;
        EXPECT_TRUE(sameBits(rig.b(), results[2])) << "split " << i << ", swap " << swap;
      }
    }
  }
}

TEST(LrttUpdate, Property08_SwapIsTheTransposedTile) {
  const Mat in = randomMat(20, 9, 1.0f, 4), grad = randomMat(20, 9, 1.0f, 5);
  LrttRig plain(9, 9, 3), swapped(9, 9, 3);
  swapped.params.swap_xd = true;
  for (LrttRig *rig : {&plain, &swapped}) {
    rig->params.transfer_every = 0;
    rig->build();
  }
  plain.learn(in, grad, 0.05f);
  swapped.learn(grad, in, 0.05f);
  EXPECT_TRUE(sameBits(plain.a(), swapped.a()));
  EXPECT_TRUE(sameBits(plain.b(), swapped.b()));
  const Mat one = plain.effective(), other = swapped.effective();
  for (int64_t i = 0; i < 9; ++i) {
    for (int64_t j = 0; j < 9; ++j) EXPECT_NEAR(double(one(i, j)), double(other(j, i)), 1e-6);
  }
}

TEST(LrttUpdate, ReuseNeedsTheReadsOfThisMiniBatch) {
  LrttRig rig(7, 11, 3);
  rig.params.projection = Projection::Reuse;
  rig.build();
  const Mat in = randomMat(4, 11, 1.0f, 4), grad = randomMat(4, 7, 1.0f, 5);
  EXPECT_THROW(rig.learn(in, grad, 0.1f), ConfigError);
  rig.forward(in);
  EXPECT_THROW(rig.learn(in, grad, 0.1f), ConfigError);
  rig.backward(grad);
  EXPECT_NO_THROW(rig.learn(in.rowsFrom(0, 3), grad.rowsFrom(0, 3), 0.1f));
  EXPECT_NO_THROW(rig.learn(in.rowsFrom(3, 1), grad.rowsFrom(3, 1), 0.1f));
  EXPECT_THROW(rig.learn(in.rowsFrom(3, 1), grad.rowsFrom(3, 1), 0.1f), ConfigError);
  rig.forward(in);
  rig.backward(grad);
  rig.endMiniBatch();
  EXPECT_THROW(rig.learn(in, grad, 0.1f), ConfigError);
}

TEST(LrttUpdate, GatedSamplesLearnThroughTheirGates) {
  LrttRig rig(7, 11, 3);
  rig.update.pulse_type = PulseType::None;
  rig.build();
  rig.setFactors(randomMat(7, 3, 0.2f, 2), randomMat(3, 11, 0.4f, 3));
  const Mat a = rig.a(), b = rig.b();
  const Mat in = randomMat(5, 11, 1.0f, 4), grad = randomMat(5, 7, 1.0f, 5),
            gate = randomMat(5, 3, 1.0f, 6);
  rig.device->adapter()->updateGated(rig.context, in.view(), grad.view(), gate.view(), 0.1f,
                                     rig.counters);
  Mat g = project(in, b, false), e = project(grad, a, true);
  for (size_t i = 0; i < g.v.size(); ++i) g.v[i] *= gate.v[i];
  for (size_t i = 0; i < e.v.size(); ++i) e.v[i] *= gate.v[i];
  const double eta = 0.1 * double(rig.device->settings().alpha);
  expectStep(a, rig.a(), outer(grad, g), eta);
  expectStep(b, rig.b(), outer(e, in), eta);
}

TEST(LrttUpdate, ExplainStatesScalesAndWarns) {
  LrttRig rig(7, 11, 3);
  rig.params.transfer_mode = TransferMode::Single;
  rig.build();
  rig.setFactors(randomMat(7, 3, 1.0f, 2), randomMat(3, 11, 1.0f, 3));
  const Mat in = randomMat(5, 11, 1.0f, 4), grad = randomMat(5, 7, 1.0f, 5), a = rig.a();
  const Value::Map told = rig.device->explain(rig.context, in.view(), grad.view(), 1.0f);
  EXPECT_EQ(*told.at("alpha").real(), double(rig.device->settings().alpha));
  EXPECT_EQ(*told.at("transfer_lr").real(), double(rig.device->settings().alpha));
  EXPECT_GT(*told.at("transfer").map()->at("undelivered").real(), 0.5);
  bool transferWarned = false, updateWarned = false;
  for (const Value &warning : *told.at("warnings").list()) {
    transferWarned = transferWarned || warning.text()->find("transfer: 3 of 3 components") == 0;
    updateWarned = updateWarned || warning.text()->find("update of A: ") == 0;
  }
  EXPECT_TRUE(transferWarned);
  EXPECT_TRUE(updateWarned);
  EXPECT_TRUE(sameBits(rig.a(), a));
}

}  // namespace
}  // namespace pulsora
