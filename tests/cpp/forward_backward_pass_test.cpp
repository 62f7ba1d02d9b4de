#include "forward_backward_pass.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <vector>

#include "core/check.h"
#include "math_util.h"

namespace RPU {
namespace {

using Vector = std::vector<float>;

struct Matrix {
  int64_t rows = 0, cols = 0;
  Vector values;

  Matrix() = default;
  Matrix(int64_t rows_, int64_t cols_, float value = 0.0f)
      : rows(rows_), cols(cols_), values(static_cast<size_t>(rows_ * cols_), value) {}
  /// Uniform in [-range, range].
  static Matrix random(int64_t rows, int64_t cols, float range, uint32_t stream) {
    Matrix m(rows, cols);
    for (size_t i = 0; i < m.values.size(); ++i) {
      const Philox4 r = draw(makeKey(99, stream, 0), Purpose::UserDraw, i, 0);
      m.values[i] = range * (2.0f * uniform(r.v[0]) - 1.0f);
    }
    return m;
  }
  MatrixView<float> view() { return rowMajor(values.data(), rows, cols); }
  MatrixView<const float> view() const { return rowMajor(values.data(), rows, cols); }
  float operator()(int64_t i, int64_t j) const { return view()(i, j); }
};

bool sameBits(const Matrix &a, const Matrix &b) {
  return a.values.size() == b.values.size() &&
         std::memcmp(a.values.data(), b.values.data(), a.values.size() * sizeof(float)) == 0;
}

Context contextOf(Isa isa, int threads) {
  Context context;
  context.cpu.isa = isa;
  context.cpu.threads = threads;
  return context;
}

const RandomKey kKey = makeKey(3, 1, 4);

AnalogRead readOf(const IOParameters &p, const Matrix &w, Pass pass = Pass::Forward) {
  return AnalogRead(Context{}, p, pass, w.cols, w.rows, kKey);
}

Matrix readAll(const IOParameters &p, const Matrix &w, const Matrix &x, const Context &context = {},
               Pass pass = Pass::Forward, uint64_t firstSample = 0) {
  Matrix y(x.rows, w.rows);
  readOf(p, w, pass).run(context, w.view(), x.view(), y.view(), firstSample);
  return y;
}

/// No converters and no noise; what a test wants is switched on from here.
IOParameters plain() {
  IOParameters p;
  p.inp_bound = p.inp_res = p.out_bound = p.out_res = p.out_noise = 0.0f;
  p.noise_management = NoiseManagement::None;
  p.bound_management = BoundManagement::None;
  return p;
}

// --- the oracle
// -----------------------------------------------------------------------------------

struct GoldenCase {
  std::string name;
  Pass pass = Pass::Forward;
  IOParameters parameters;
  Matrix y;
};

struct Golden {
  RandomKey key{};
  uint64_t firstSample = 0;
  Matrix x, w;
  std::vector<GoldenCase> cases;
};

Matrix readMatrix(std::istream &in) {
  int64_t rows = 0, cols = 0;
  in >> rows >> cols;
  Matrix m(rows, cols);
  for (float &v : m.values) in >> v;
  return m;
}

Value valueOf(const std::string &text) {
  if (text == "true" || text == "false") return Value(text == "true");
  std::istringstream number(text);
  double v = 0.0;
  if (number >> v) return Value(v);
  return Value(text);
}

/// Reads of numpy's (tests/python/reference_io.py).
Golden readGolden() {
  std::ifstream in(std::string(PULSORA_GOLDEN_DIR) + "/analog_read.txt");
  Golden golden;
  Value::Map map;
  uint64_t seed = 0;
  uint32_t tile = 0, array = 0;
  std::string word, text;
  while (in >> word && word != "end") {
    if (word == "key") {
      in >> seed >> tile >> array >> golden.firstSample;
      golden.key = makeKey(seed, tile, array);
    } else if (word == "x" || word == "w") {
      (word == "x" ? golden.x : golden.w) = readMatrix(in);
    } else if (word == "case") {
      golden.cases.emplace_back();
      in >> golden.cases.back().name >> text;
      golden.cases.back().pass = text == "backward" ? Pass::Backward : Pass::Forward;
      map.clear();
    } else if (word == "y") {
      golden.cases.back().parameters = readParams<IOParameters>(Value(map), "golden");
      golden.cases.back().y = readMatrix(in);
    } else {
      in >> text;
      map[word] = valueOf(text);
    }
  }
  return golden;
}

TEST(AnalogReadOracle, EveryCaseAgreesWithTheIndependentImplementation) {
  const Golden golden = readGolden();
  ASSERT_GE(golden.cases.size(), 30U);
  for (const GoldenCase &c : golden.cases) {
    for (Isa isa : supportedIsas()) {
      const Context context = contextOf(isa, 2);
      AnalogRead read(context, c.parameters, c.pass, golden.w.cols, golden.w.rows, golden.key);
      Matrix y(c.y.rows, c.y.cols);
      read.run(context, golden.w.view(), golden.x.view(), y.view(), golden.firstSample);
      for (size_t i = 0; i < y.values.size(); ++i) {
        EXPECT_NEAR(y.values[i], c.y.values[i], 2e-5f * (1.0f + std::fabs(c.y.values[i])))
            << c.name << ", element " << i << ", " << isaName(isa);
      }
    }
  }
}

// --- what must not change a bit
// -------------------------------------------------------------------

/// The oracle's parameter sets on a larger problem, on which bound management repeats some rows.
template <class Check>
void forEachSetting(const Check &check) {
  const Matrix w = Matrix::random(70, 150, 0.5f, 1), x = Matrix::random(37, 150, 1.0f, 2);
  for (const GoldenCase &c : readGolden().cases) {
    if (c.parameters.is_perfect) continue;
    IOParameters p = c.parameters;
    if (c.name.find("bm_") == 0) p.out_bound *= 6.0f;
    SCOPED_TRACE(c.name);
    check(p, c.pass, w, x);
  }
}

constexpr uint64_t kFirst = 1001;

TEST(AnalogReadBits, DoNotDependOnInstructionSetOrThreads) {
  forEachSetting([](const IOParameters &p, Pass pass, const Matrix &w, const Matrix &x) {
    const Matrix expected = readAll(p, w, x, contextOf(Isa::V2, 1), pass, kFirst);
    for (Isa isa : supportedIsas()) {
      EXPECT_TRUE(sameBits(readAll(p, w, x, contextOf(isa, 1), pass, kFirst), expected))
          << isaName(isa);
    }
    for (int threads : {2, 3}) {
      EXPECT_TRUE(sameBits(readAll(p, w, x, contextOf(bestIsa(), threads), pass, kFirst), expected))
          << threads << " threads";
    }
  });
}

TEST(AnalogReadBits, Property37DoNotDependOnTheSplitOfTheBatch) {
  forEachSetting([](const IOParameters &p, Pass pass, const Matrix &w, const Matrix &x) {
    const Matrix expected = readAll(p, w, x, {}, pass, kFirst);
    Matrix y(x.rows, w.rows);
    AnalogRead read = readOf(p, w, pass);
    int64_t row = 0;
    for (int64_t rows : {1, 2, 0, 13, 20, 1}) {
      read.run({}, w.view(), x.view().block(row, 0, rows, x.cols),
               y.view().block(row, 0, rows, w.rows), kFirst + static_cast<uint64_t>(row));
      row += rows;
    }
    ASSERT_EQ(row, x.rows);
    EXPECT_TRUE(sameBits(y, expected));
  });
}

TEST(AnalogReadBits, AreTheSameForACustomProductThatSeesWholeMiniBatches) {
  forEachSetting([](const IOParameters &p, Pass pass, const Matrix &w, const Matrix &x) {
    Matrix y(x.rows, w.rows);
    const AnalogRead::Product product = [&](MatrixView<const float> in, MatrixView<float> out) {
      EXPECT_EQ(in.rows, x.rows);
      gemm(Context{}, 1.0f, in, w.view().transposed(), 0.0f, out);
    };
    readOf(p, w, pass).run({}, w.view(), product, x.view(), y.view(), kFirst);
    EXPECT_TRUE(sameBits(y, readAll(p, w, x, {}, pass, kFirst)));
  });
}

TEST(AnalogReadBits, AreTheSameForAnyLayoutOfItsMatrices) {
  forEachSetting([](const IOParameters &p, Pass pass, const Matrix &w, const Matrix &x) {
    const Matrix expected = readAll(p, w, x, {}, pass, kFirst);
    Matrix wt(w.cols, w.rows), xt(x.cols, x.rows), yt(w.rows, x.rows), y(x.rows, w.rows);
    copy(w.view(), wt.view().transposed());
    copy(x.view(), xt.view().transposed());
    readOf(p, w, pass)
        .run({}, std::as_const(wt).view().transposed(), std::as_const(xt).view().transposed(),
             yt.view().transposed(), kFirst);
    copy(std::as_const(yt).view().transposed(), y.view());
    EXPECT_TRUE(sameBits(y, expected));
  });
}

TEST(AnalogReadBits, SamplesKeysAndDirectionsHaveTheirOwnNoise) {
  const Matrix w = Matrix::random(20, 30, 0.5f, 1), x = Matrix::random(1, 30, 1.0f, 2);
  IOParameters p;
  p.out_res = 0.0f;
  const Matrix y = readAll(p, w, x, {}, Pass::Forward, 8);
  EXPECT_TRUE(sameBits(readAll(p, w, x, {}, Pass::Forward, 8), y));
  EXPECT_FALSE(sameBits(readAll(p, w, x, {}, Pass::Forward, 9), y));
  EXPECT_FALSE(sameBits(readAll(p, w, x, {}, Pass::Backward, 8), y));
  Matrix other(1, 20);
  AnalogRead(Context{}, p, Pass::Forward, 30, 20, makeKey(3, 1, 5))
      .run({}, w.view(), x.view(), other.view(), 8);
  EXPECT_FALSE(sameBits(other, y));
}

// --- physics
// --------------------------------------------------------------------------------------

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

TEST(AnalogRead, Property17APerfectReadIsTheProduct) {
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
  copy(w.view().transposed(), wt.view());
  expectExactProduct(w, x, y);
  expectExactProduct(wt, d, dx);
}

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
  for (int64_t s = 0; s < kN; ++s) copy(x.view(), many.view().block(s, 0, 1, x.cols));
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

TEST(AnalogReadNoise, Property18OutputNoiseOfOneReadScalesWithTheInput) {
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

// --- managements
// ----------------------------------------------------------------------------------

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
    copy(in, out);
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

TEST(NoiseManagement, Property38TheRunningMeanIsRestored) {
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
}  // namespace RPU
