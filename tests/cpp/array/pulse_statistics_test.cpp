#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "array/pulsed_weight_updater.h"
#include "devices/constant_step.h"
#include "util/pulse_test_util.h"

namespace pulsora::testing {
namespace {

/// Signed counts of every cell in many samples of one x and d, and what they should follow.
struct Counts {
  int64_t samples;
  int rows, cols;
  int length;
  std::vector<double> p, q;  // firing probabilities
  std::vector<int> n;        // [sample][cell], signed
  int at(int64_t s, int cell) const { return n[static_cast<size_t>(s * rows * cols + cell)]; }
  double pq(int cell) const {
    return p[static_cast<size_t>(cell % cols)] * q[static_cast<size_t>(cell / cols)];
  }
  std::vector<double> mean() const {
    std::vector<double> m(static_cast<size_t>(rows * cols));
    for (size_t i = 0; i < n.size(); ++i) m[i % m.size()] += n[i] / static_cast<double>(samples);
    return m;
  }
};

double sign(float v) { return v < 0.0f ? -1.0 : 1.0; }

Counts countMany(const UpdateParameters &p, const std::vector<float> &x,
                 const std::vector<float> &d, float lr, float dw,
                 int64_t repetitions = kRepetitions) {
  const Batch b = repeatedBatch(repetitions, x, d);
  BitLineMaker maker;
  maker.makeWords(Context{}, b.xView(), b.dView(), lr, dw, p, kPulseTrainKey, 0);
  float xMax = 0.0f;
  float dMax = 0.0f;
  for (const float v : x) xMax = std::max(xMax, std::fabs(v));
  for (const float v : d) dMax = std::max(dMax, std::fabs(v));
  const PulseTrainScale t = trainScale(p, lr, dw, xMax, dMax);
  Counts c{repetitions, static_cast<int>(d.size()), static_cast<int>(x.size()), t.length, {}, {},
           {}};
  for (const float v : x)
    c.p.push_back(std::min(1.0, static_cast<double>(t.xScale * std::fabs(v))));
  for (const float v : d)
    c.q.push_back(std::min(1.0, static_cast<double>(t.dScale * std::fabs(v))));
  for (int64_t s = 0; s < repetitions; ++s) {
    for (int i = 0; i < c.rows; ++i) {
      for (int j = 0; j < c.cols; ++j) c.n.push_back(signedCount(maker.words(), s, i, j));
    }
  }
  return c;
}

const Counts &unclippedCounts() {
  static const Counts kCounts = countMany(typed(PulseType::StochasticCompressed), kX, kD, kLr, kDw);
  return kCounts;
}
const Counts &twoPassCounts() {
  static const Counts kCounts = countMany(typed(PulseType::Stochastic), kX, kD, kLr, kDw);
  return kCounts;
}

double covariance(const Counts &c, const std::vector<double> &mean, int a, int b, double &error) {
  double sum = 0.0;
  double squares = 0.0;
  for (int64_t s = 0; s < c.samples; ++s) {
    const double product =
        (c.at(s, a) - mean[static_cast<size_t>(a)]) * (c.at(s, b) - mean[static_cast<size_t>(b)]);
    sum += product;
    squares += product * product;
  }
  const auto n = static_cast<double>(c.samples);
  error = std::sqrt((squares / n - sum / n * sum / n) / n);
  return sum / n;
}

TEST(PulseStatistics, Property01_MeanOfUnclippedTrains) {
  for (const Counts *c : {&unclippedCounts(), &twoPassCounts()}) {
    EXPECT_EQ(c->length, 8);  // k = 7.4
    const std::vector<double> mean = c->mean();
    for (int cell = 0; cell < 12; ++cell) {
      const double expected = -static_cast<double>(kLr * kX[static_cast<size_t>(cell % 4)] *
                                                   kD[static_cast<size_t>(cell / 4)] / kDw);
      const double r = c->pq(cell);
      const double sd = std::sqrt(c->length * r * (1.0 - r));
      EXPECT_NEAR(mean[static_cast<size_t>(cell)], expected,
                  5.0 * sd / std::sqrt(double(kRepetitions)) + 1e-6)
          << cell;
    }
  }
}

TEST(PulseStatistics, Property01_WeightsMoveByTheCountsOfTheWords) {
  const Counts &c = unclippedCounts();
  PulsedDevice device(Context{}, idealDevice(static_cast<double>(kDw)), 3, 4, kDeviceKey);
  PulsedWeightUpdater updater(typed(PulseType::StochasticCompressed), kPulseTrainKey);
  const Batch b = repeatedBatch(kRepetitions, kX, kD);
  updater.update(Context{}, device, b.xView(), b.dView(), kLr, 0);
  const std::vector<float> w = storedWeights(device);
  std::vector<int64_t> sum(12);
  for (size_t i = 0; i < c.n.size(); ++i) sum[i % 12] += c.n[i];
  for (size_t cell = 0; cell < 12; ++cell) EXPECT_EQ(w[cell], static_cast<float>(sum[cell]) * kDw);
}

TEST(PulseStatistics, Property02_MeanOfClippedTrainsAndItsReport) {  // N = 5e4, 5 sigma
  constexpr int64_t kN = 50000;
  UpdateParameters p = typed(PulseType::StochasticCompressed);
  p.update_management = p.update_bl_management = false;
  const std::vector<float> x = {0.9f, 0.3f};
  const std::vector<float> d = {0.3f, -0.2f};
  const Counts c = countMany(p, x, d, 0.1f, 1e-3f, kN);
  EXPECT_EQ(c.p[0], 1.0);  // 0.9 sqrt(100 / 31) > 1
  const std::vector<double> mean = c.mean();
  for (int cell = 0; cell < 4; ++cell) {
    const double r = c.pq(cell);
    const double expected = -sign(d[static_cast<size_t>(cell / 2)]) * c.length * r;
    EXPECT_NEAR(mean[static_cast<size_t>(cell)], expected,
                5.0 * std::sqrt(c.length * r * (1.0 - r) / double(kN)) + 1e-5);
  }
  const double wanted = 0.1 * 0.9 * 0.3 / 1e-3;
  EXPECT_NEAR(1.0 + mean[0] / wanted, 0.38, 0.01);  // this share of the update is lost,
  const Batch b = repeatedBatch(3, x, d);
  const Value::Map report = explainPulses(Context{}, p, 1e-3f, b.xView(), b.dView(), 0.1f);
  EXPECT_EQ(*report.at("clipped_samples").integer(), 3);  // and that is said, of all cells:
  double kept = 0.0, asked = 0.0;
  for (size_t cell = 0; cell < 4; ++cell) {
    kept += std::abs(mean[cell]);
    asked += 0.1 * std::abs(double(x[cell % 2]) * double(d[cell / 2])) / 1e-3;
  }
  EXPECT_NEAR(*report.at("undelivered").real(), 1.0 - kept / asked, 0.01);
  ASSERT_EQ(report.at("warnings").list()->size(), 1u);
  EXPECT_NE(report.at("warnings").list()->front().text()->find("desired_bl"), std::string::npos);
  BitLineMaker maker;
  maker.makeWords(Context{}, b.xView(), b.dView(), 0.1f, 1e-3f, p, kPulseTrainKey, 0);
  EXPECT_EQ(maker.stats(Context{}).clippedSamples, 3u);
}

TEST(PulseStatistics, Property03_VarianceOfTheCounts) {
  const Counts &c = unclippedCounts();
  const std::vector<double> mean = c.mean();
  for (int cell = 0; cell < 12; ++cell) {
    double error = 0.0;
    const double variance = covariance(c, mean, cell, cell, error);
    const double r = c.pq(cell);
    const double expected = c.length * r * (1.0 - r);
    const double kurtosis = 3.0 + (1.0 - 6.0 * r * (1.0 - r)) / expected;
    EXPECT_NEAR(variance / expected, 1.0, 5.0 * std::sqrt((kurtosis - 1.0) / double(kRepetitions)))
        << cell;
  }
}

// N = 1e5 updates of one sample each, 5 sigma. The cell's cycle noise adds s_c^2 per pulse.
TEST(PulseStatistics, Property03_VarianceOfTheWeightWithCycleNoise) {
  constexpr int kN = 100000;
  constexpr double kNoise = 0.3;
  PulsedDevice device(Context{}, idealDevice(1e-3, kNoise), 1, 1, kDeviceKey);
  PulsedWeightUpdater updater(typed(PulseType::StochasticCompressed), kPulseTrainKey);
  const Batch down = repeatedBatch(1, {0.5f}, {0.48f});  // k = 2.4 in 3 slots
  const Batch up = repeatedBatch(1, {0.5f}, {-0.48f});
  double before = 0.0;
  double squares = 0.0;
  for (int s = 0; s < kN; ++s) {
    const Batch &b = s % 2 ? up : down;  // back and forth, so that rounding stays small
    updater.update(Context{}, device, b.xView(), b.dView(), kLr, static_cast<uint64_t>(s));
    const double w = static_cast<double>(device.weights()(0, 0));
    const double change = (s % 2 ? w - before : before - w) / 1e-3 - 2.4;
    squares += change * change;
    before = w;
  }
  const double r = 2.4 / 3.0;
  const double weight[4] = {0.2 * 0.2 * 0.2, 3 * r * 0.04, 3 * r * r * 0.2, r * r * r};
  const double expected = 3 * r * (1 - r + kNoise * kNoise);
  double fourth = 0.0;  // central moment of n + s_c sqrt(n) xi
  for (int n = 0; n < 4; ++n) {
    const double c = n - 2.4;
    fourth += weight[n] *
              (c * c * c * c + 6 * c * c * kNoise * kNoise * n + 3 * std::pow(kNoise, 4) * n * n);
  }
  EXPECT_NEAR(squares / kN / expected, 1.0,
              5.0 * std::sqrt((fourth / (expected * expected) - 1.0) / kN));
}

TEST(PulseStatistics, Property04_SharedLineCovariance) {
  const Counts &c = unclippedCounts();
  const std::vector<double> mean = c.mean();
  for (int a = 0; a < 12; ++a) {
    for (int b = 0; b < a; ++b) {
      const auto i = static_cast<size_t>(a / 4), k = static_cast<size_t>(b / 4);
      const auto j = static_cast<size_t>(a % 4), l = static_cast<size_t>(b % 4);
      double expected = 0.0;
      if (j == l)
        expected = c.length * c.p[j] * (1 - c.p[j]) * c.q[i] * c.q[k] * sign(kD[i]) * sign(kD[k]);
      if (i == k)
        expected = c.length * c.q[i] * (1 - c.q[i]) * c.p[j] * c.p[l] * sign(kX[j]) * sign(kX[l]);
      double error = 0.0;
      const double measured = covariance(c, mean, a, b, error);
      EXPECT_NEAR(measured, expected, 5.0 * error) << "cells " << a << " and " << b;
    }
  }
}

TEST(PulseStatistics, Property04_TwoPassesShareNoDTrainBetweenSignsOfX) {
  const Counts &c = twoPassCounts();
  const std::vector<double> mean = c.mean();
  for (int a = 0; a < 12; ++a) {
    for (int b = 0; b < a; ++b) {
      const auto i = static_cast<size_t>(a / 4), k = static_cast<size_t>(b / 4);
      const auto j = static_cast<size_t>(a % 4), l = static_cast<size_t>(b % 4);
      double expected = 0.0;
      if (j == l)
        expected = c.length * c.p[j] * (1 - c.p[j]) * c.q[i] * c.q[k] * sign(kD[i]) * sign(kD[k]);
      if (i == k && sign(kX[j]) == sign(kX[l]))
        expected = c.length * c.q[i] * (1 - c.q[i]) * c.p[j] * c.p[l];
      double error = 0.0;
      const double measured = covariance(c, mean, a, b, error);
      EXPECT_NEAR(measured, expected, 5.0 * error) << "cells " << a << " and " << b;
    }
  }
}

// N = 2e5 slots, 5 sigma: no x line fires with a d line more often than chance has it; the last x
// line and the first d line, which a shared generator would tie together, included.
TEST(PulseStatistics, Property04_LinesOfXAndDAreIndependent) {
  UpdateParameters p = typed(PulseType::StochasticCompressed, 1);
  p.update_management = p.update_bl_management = false;
  const Batch b = repeatedBatch(kRepetitions, {0.5f, 0.5f, 0.5f, 0.5f}, {0.5f, 0.5f, 0.5f});
  BitLineMaker maker;
  maker.makeWords(Context{}, b.xView(), b.dView(), kDw, kDw, p, kPulseTrainKey, 0);
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 4; ++j) {
      int together = 0;
      for (int64_t s = 0; s < kRepetitions; ++s) together -= signedCount(maker.words(), s, i, j);
      EXPECT_NEAR(together / double(kRepetitions), 0.25,
                  5.0 * std::sqrt(0.25 * 0.75 / double(kRepetitions)));
    }
  }
}

// Rank of an integer matrix modulo a prime, at most its true rank.
int rankOf(std::vector<std::vector<int64_t>> a) {
  constexpr int64_t kPrime = 1000003;
  const auto power = [](int64_t base, int64_t exponent) {
    int64_t result = 1;
    for (; exponent; exponent >>= 1, base = base * base % kPrime)
      result = exponent & 1 ? result * base % kPrime : result;
    return result;
  };
  size_t rank = 0;
  for (size_t col = 0; col < a[0].size() && rank < a.size(); ++col) {
    size_t pivot = rank;
    while (pivot < a.size() && a[pivot][col] % kPrime == 0) ++pivot;
    if (pivot == a.size()) continue;
    std::swap(a[rank], a[pivot]);
    const int64_t inverse = power((a[rank][col] % kPrime + kPrime) % kPrime, kPrime - 2);
    for (size_t i = rank + 1; i < a.size(); ++i) {
      const int64_t factor = (a[i][col] % kPrime + kPrime) % kPrime * inverse % kPrime;
      for (size_t j = 0; j < a[0].size(); ++j) a[i][j] = (a[i][j] - factor * a[rank][j]) % kPrime;
    }
    ++rank;
  }
  return static_cast<int>(rank);
}

TEST(PulseStatistics, Property05_OneSlotIsAnOuterProductAndAnyTrainHasAtMostItsRank) {
  const Batch b = randomBatch(200, 11, 9, 21);
  for (const int bl : {1, 2, 3, 5}) {
    UpdateParameters p = typed(PulseType::StochasticCompressed, bl);
    p.update_bl_management = false;
    PulsedWeightUpdater updater(p, kPulseTrainKey);
    int moved = 0;
    for (int64_t s = 0; s < b.samples; ++s) {
      PulsedDevice device(Context{}, idealDevice(1.0), 9, 11, kDeviceKey);
      updater.update(Context{}, device, b.xRows(s, s + 1), b.dRows(s, s + 1), 8.0f,
                     static_cast<uint64_t>(s));
      std::vector<std::vector<int64_t>> counts(9, std::vector<int64_t>(11));
      for (size_t i = 0; i < 9; ++i) {
        for (size_t j = 0; j < 11; ++j) {
          counts[i][j] = static_cast<int64_t>(
              device.weights()(static_cast<int64_t>(i), static_cast<int64_t>(j)));
          EXPECT_LE(std::abs(counts[i][j]), bl);
        }
      }
      const int rank = rankOf(counts);
      EXPECT_LE(rank, bl);
      moved += rank == bl;
    }
    EXPECT_GT(moved, 5) << "too few samples reach rank " << bl;
  }
}

TEST(PulseStatistics, Property40_TheLedgerHasItsExpectation) {  // N = 2e5 samples, 5 sigma
  const Counts &c = unclippedCounts();
  double total = 0.0;
  double expected = 0.0;
  double variance = 0.0;
  for (const int n : c.n) total += std::abs(n);
  for (int a = 0; a < 12; ++a) {
    expected += c.length * c.pq(a);
    for (int b = 0; b < 12; ++b) {
      const auto i = static_cast<size_t>(a / 4), k = static_cast<size_t>(b / 4);
      const auto j = static_cast<size_t>(a % 4), l = static_cast<size_t>(b % 4);
      const double both = (j == l ? c.p[j] : c.p[j] * c.p[l]) * (i == k ? c.q[i] : c.q[i] * c.q[k]);
      variance += c.length * (both - c.pq(a) * c.pq(b));
    }
  }
  EXPECT_NEAR(total / double(kRepetitions), expected,
              5.0 * std::sqrt(variance / double(kRepetitions)));
}

}  // namespace
}  // namespace pulsora::testing
