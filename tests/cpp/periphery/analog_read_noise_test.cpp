#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "core/check.h"
#include "linalg/math_util.h"
#include "periphery/analog_read_test_util.h"

namespace pulsora::testing {
namespace {

struct Statistics {
  double mean = 0.0, variance = 0.0;
};
Statistics statisticsOf(const Vector &values, double centre) {
  Statistics s;
  for (float v : values) s.mean += (double(v) - centre) / double(values.size());
  for (float v : values) {
    const double off = double(v) - centre - s.mean;
    s.variance += off * off / double(values.size() - 1);
  }
  return s;
}

/// Reads one input N times and compares with normal noise of the given variance, at 5 sigma.
void expectNoise(const IOParameters &p, const Matrix &w, const Matrix &x, double variance) {
  constexpr int64_t kN = 20000;
  Matrix many(kN, x.cols);
  for (int64_t s = 0; s < kN; ++s) copy(Context{}, x.view(), many.view().block(s, 0, 1, x.cols));
  const Matrix y = readAll(p, w, many);
  for (int64_t i = 0; i < w.rows; ++i) {
    double exact = 0.0;
    for (int64_t j = 0; j < w.cols; ++j) exact += double(w(i, j)) * double(x(0, j));
    Vector line(kN);
    for (int64_t s = 0; s < kN; ++s) line[size_t(s)] = y(s, i);
    const Statistics got = statisticsOf(line, exact);
    EXPECT_NEAR(got.mean, 0.0, 5 * std::sqrt(variance / kN)) << "line " << i;
    EXPECT_NEAR(got.variance / variance, 1.0, 5 * std::sqrt(2.0 / kN)) << "line " << i;
  }
}

double squaredNorm(const Matrix &m) {
  double sum = 0.0;
  for (float v : m.values) sum += double(v) * double(v);
  return sum;
}

TEST(AnalogReadNoise, Property18_OutputNoiseOfOneReadScalesWithTheInput) {
  IOParameters p = plain();
  p.out_noise = 0.06f;
  const Matrix w = Matrix::random(3, 8, 0.5f, 1);
  Matrix x = Matrix::random(1, 8, 1.0f, 2);
  expectNoise(p, w, x, 0.06 * 0.06);
  p.noise_management = NoiseManagement::AbsMax;
  float largest = 0.0f;
  for (float v : x.values) largest = std::fmax(largest, std::fabs(v));
  for (float &v : x.values) v *= 5.0f / largest;
  expectNoise(p, w, x, 0.06 * 0.06 * 25.0);
}

TEST(AnalogReadNoise, InputNoiseArrivesThroughTheWeights) {
  IOParameters p = plain();
  p.inp_noise = 0.1f;
  const Matrix w = Matrix::random(1, 8, 0.5f, 1), x = Matrix::random(1, 8, 1.0f, 2);
  expectNoise(p, w, x, 0.01 * squaredNorm(w));
}

TEST(AnalogReadNoise, WeightNoiseGrowsWithTheInputAndForPcmWithTheWeights) {
  IOParameters p = plain();
  p.w_noise = 0.1f;
  p.w_noise_type = WeightNoiseType::AdditiveConstant;
  const Matrix w = Matrix::random(1, 8, 0.5f, 1), x = Matrix::random(1, 8, 1.0f, 2);
  expectNoise(p, w, x, 0.01 * squaredNorm(x));
  p.w_noise_type = WeightNoiseType::PcmRead;
  double weighted = 0.0;
  for (int64_t j = 0; j < 8; ++j) {
    weighted += std::fabs(double(w(0, j))) * double(x(0, j)) * double(x(0, j));
  }
  expectNoise(p, w, x, 0.01 * weighted);
}

TEST(AnalogReadNoise, TheDigitalSumOfTwoReadsHasTwiceTheNoiseOfTheAnalogSum) {
  IOParameters p = plain();
  p.out_noise = 0.05f;
  const Matrix w = Matrix::random(2, 8, 0.5f, 1), x = Matrix::random(1, 8, 1.0f, 2);
  p.mv_type = MvType::PosNegSeparate;
  expectNoise(p, w, x, 0.05 * 0.05);
  p.mv_type = MvType::PosNegSeparateDigitalSum;
  expectNoise(p, w, x, 2 * 0.05 * 0.05);
}

TEST(AnalogReadNoise, TheNoiseOfSlicesAddsUpWithTheirWeights) {
  // Levels of 1/15, of 4 bits; a slice of b bits stands for (2^b - 1) 2^(b k) of them, or a quarter
  // of that where two zeros fill the lowest slice of three bits up.
  IOParameters p = plain();
  p.out_noise = 0.05f;
  p.mv_type = MvType::BitSerial;
  p.inp_bound = 1.0f;
  p.inp_res = 30.0f;
  const Matrix w = Matrix::random(2, 8, 0.5f, 1);
  Matrix x = Matrix::random(1, 8, 1.0f, 2);
  for (float &v : x.values) v = std::rint(v * 15.0f) / 15.0f;
  expectNoise(p, w, x, 0.05 * 0.05 * (1 + 4 + 16 + 64) / 225.0);
  p.input_slice_bits = 2;
  expectNoise(p, w, x, 0.05 * 0.05 * (9 + 144) / 225.0);
  p.input_slice_bits = 3;
  expectNoise(p, w, x, 0.05 * 0.05 * (49 + 56 * 56) / 16.0 / 225.0);
  p.mv_type = MvType::BitSerialAnalogSum;  // one reading
  expectNoise(p, w, x, 0.05 * 0.05);
}

TEST(AnalogReadNoise, RepeatedReadsOfBoundManagementAreFresh) {
  // Every row is read 3 times at alpha 1, 2, 4 (out_bound 0.3, |y| = 1): what is left is the noise
  // of the last read alone, 4 times as large, in no relation to that of a first read.
  constexpr int64_t kN = 20000;
  IOParameters p = plain();
  p.out_noise = 0.005f;
  const Matrix w(1, 1, 1.0f), x(kN, 1, 1.0f);
  const Matrix first = readAll(p, w, x);
  p.out_bound = 0.3f;
  p.bound_management = BoundManagement::Iterative;
  const Matrix last = readAll(p, w, x);
  const Statistics a = statisticsOf(first.values, 1.0), b = statisticsOf(last.values, 1.0);
  EXPECT_NEAR(b.variance / (16 * 0.005 * 0.005), 1.0, 5 * std::sqrt(2.0 / kN));
  EXPECT_NEAR(b.mean, 0.0, 5 * 0.02 / std::sqrt(double(kN)));
  double covariance = 0.0;
  for (size_t i = 0; i < size_t(kN); ++i) {
    covariance += (double(first.values[i]) - 1.0) * (double(last.values[i]) - 1.0) / kN;
  }
  EXPECT_NEAR(covariance / std::sqrt(a.variance * b.variance), 0.0, 5 / std::sqrt(double(kN)));
}

TEST(AnalogReadNoise, StochasticRoundingIsUnbiased) {
  // Steps of 0.1; 0.37 lies 0.7 of a step above 0.3. N = 1e5; variance of a Bernoulli, 5 sigma.
  constexpr int64_t kN = 100000;
  for (bool input : {true, false}) {
    IOParameters p = plain();
    (input ? p.inp_bound : p.out_bound) = 1.0f;
    (input ? p.inp_res : p.out_res) = 0.05f;
    (input ? p.inp_sto_round : p.out_sto_round) = true;
    const Matrix y = readAll(p, Matrix(1, 1, 1.0f), Matrix(kN, 1, 0.37f));
    const Statistics s = statisticsOf(y.values, 0.37);
    const double variance = 0.01 * 0.7 * 0.3;
    EXPECT_NEAR(s.mean, 0.0, 5 * std::sqrt(variance / kN));
    const double kurtosis = (1 - 3 * 0.7 * 0.3) / (0.7 * 0.3);
    EXPECT_NEAR(s.variance / variance, 1.0, 5 * std::sqrt((kurtosis - 1) / kN));
  }
}

TEST(AnalogReadSpread, NoiseStrengthVariesFromLineToLineAndStays) {
  // sigma_i = 0.1 |1 + 0.2 xi_i|, N = 400 lines; each sigma_i is measured from 400 samples. The
  // spread of the estimates is that of sigma_i and of estimating: sd^2 = 0.02^2 + 0.1^2 (1 +
  // 0.2^2) / (2 * 400).
  IOParameters p = plain();
  p.out_noise = 0.1f;
  p.out_noise_std = 0.2f;
  constexpr int64_t kLines = 400, kSamples = 400;
  const Matrix y = readAll(p, Matrix(kLines, 1), Matrix(kSamples, 1));
  Vector sigma(kLines);
  for (int64_t i = 0; i < kLines; ++i) {
    double sum = 0.0;
    for (int64_t s = 0; s < kSamples; ++s) sum += double(y(s, i)) * double(y(s, i)) / kSamples;
    sigma[size_t(i)] = static_cast<float>(std::sqrt(sum));
  }
  const Statistics s = statisticsOf(sigma, 0.1);
  const double variance = 0.02 * 0.02 + 0.01 * 1.04 / (2.0 * kSamples);
  // The mean of the root of a chi square is smaller by 1 / (4 kSamples).
  EXPECT_NEAR(s.mean, -0.1 / (4.0 * kSamples), 5 * std::sqrt(variance / kLines));
  EXPECT_NEAR(s.variance / variance, 1.0, 5 * std::sqrt(2.0 / kLines));
}

TEST(AnalogReadSpread, BothDirectionsSeeTheSameCells) {
  // With -1 on one line at a time, the read of negative inputs shows each weight as it sees it.
  IOParameters p = plain();
  p.mv_type = MvType::PosNegSeparate;
  p.w_read_asymmetry_dtod = 0.2f;
  const Matrix w(60, 50, 1.0f), wt(50, 60, 1.0f);
  Matrix x(50, 50), d(60, 60);
  for (int64_t j = 0; j < 50; ++j) x.view()(j, j) = -1.0f;
  for (int64_t i = 0; i < 60; ++i) d.view()(i, i) = -1.0f;
  const Matrix y = readAll(p, w, x), dx = readAll(p, wt, d, {}, Pass::Backward);
  Vector factors;
  for (int64_t i = 0; i < 60; ++i) {
    for (int64_t j = 0; j < 50; ++j) {
      EXPECT_EQ(y(j, i), dx(i, j));
      factors.push_back(-y(j, i));
    }
  }
  const Statistics s = statisticsOf(factors, 1.0);  // N = 3000
  EXPECT_NEAR(s.mean, 0.0, 5 * 0.2 / std::sqrt(3000.0));
  EXPECT_NEAR(s.variance / 0.04, 1.0, 5 * std::sqrt(2.0 / 3000.0));
  for (float &v : x.values) v = -v;
  for (float v : readAll(p, w, x).values) EXPECT_EQ(v, 1.0f);  // positive inputs see the weight
}

}  // namespace
}  // namespace pulsora::testing
