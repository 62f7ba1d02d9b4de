#include <cmath>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <vector>

#include "core/check.h"
#include "linalg/math_util.h"
#include "periphery/analog_read_test_util.h"

namespace pulsora::testing {
namespace {

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

TEST(AnalogReadOracle, Property41_EveryCaseAgreesWithTheIndependentImplementation) {
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

/// The oracle's parameter sets on a larger problem: bound management repeats some rows, and three
/// threads can have rows of their own.
template <class Check>
void forEachSetting(const Check &check) {
  const Matrix w = Matrix::random(70, 150, 0.5f, 1), x = Matrix::random(101, 150, 1.0f, 2);
  for (const GoldenCase &c : readGolden().cases) {
    if (c.parameters.is_perfect) continue;
    IOParameters p = c.parameters;
    if (c.name.find("bm_") == 0) p.out_bound *= 6.0f;
    SCOPED_TRACE(c.name);
    check(p, c.pass, w, x);
  }
}

constexpr uint64_t kFirst = 1001;

TEST(AnalogReadBits, Property37_DoNotDependOnInstructionSetOrThreads) {
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

TEST(AnalogReadBits, Property37_DoNotDependOnTheSplitOfTheBatch) {
  forEachSetting([](const IOParameters &p, Pass pass, const Matrix &w, const Matrix &x) {
    const Matrix expected = readAll(p, w, x, {}, pass, kFirst);
    Matrix y(x.rows, w.rows);
    AnalogRead read = readOf(p, w, pass);
    int64_t row = 0;
    for (int64_t rows : {1, 2, 0, 13, 20, 1, 64}) {
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
    copy(Context{}, w.view(), wt.view().transposed());
    copy(Context{}, x.view(), xt.view().transposed());
    readOf(p, w, pass)
        .run({}, std::as_const(wt).view().transposed(), std::as_const(xt).view().transposed(),
             yt.view().transposed(), kFirst);
    copy(Context{}, std::as_const(yt).view().transposed(), y.view());
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

}  // namespace
}  // namespace pulsora::testing
