#include "io_manager.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "core/check.h"
#include "io_kernels.h"

namespace RPU {
namespace {

using Vector = std::vector<float>;

// --- elements against their formulas
// --------------------------------------------------------------

TEST(Converter, RoundsToTheNearestLevelAndHasAsManyAsItsResolutionSays) {
  const Converter adc(2.0 * 3.0 / 12.0, 3.0f, false);  // 12 steps over [-3, 3]
  for (int i = -6; i <= 6; ++i) {
    const float level = 0.5f * float(i);
    for (float off : {-0.24f, 0.0f, 0.24f}) EXPECT_EQ(quantised(adc, level + off, 0.0f), level);
  }
  const Converter continuous(0.0, 3.0f, false);
  EXPECT_EQ(quantised(continuous, 0.123f, 0.9f), 0.123f);
}

TEST(Converter, ABoundOfZeroIsUnlimited) {
  EXPECT_EQ(Converter(0.0, 0.0f, false).bound, kInfinity);
  InputConverter input;
  EXPECT_EQ(convertedInput(input, 1e30f, 1.0f, 0.0f, 0.0f), 1e30f);
}

TEST(Converter, StochasticRoundingTakesTheUpperLevelWithTheRightProbability) {
  const Converter dac(0.25, 1.0f, true);
  // v = 0.3 lies 0.2 of a step above 0.25: the upper level for u >= 0.8.
  EXPECT_EQ(quantised(dac, 0.3f, 0.79f), 0.25f);
  EXPECT_EQ(quantised(dac, 0.3f, 0.81f), 0.5f);
  EXPECT_EQ(quantised(dac, -0.3f, 0.19f), -0.5f);
  EXPECT_EQ(quantised(dac, -0.3f, 0.21f), -0.25f);
  EXPECT_EQ(quantised(dac, 0.5f, 0.999f), 0.5f);
}

TEST(Input, EffectsComeInTheirOrder) {
  InputConverter c;
  c.dac = Converter(0.25, 1.0f, false);
  c.noise = 0.5f;
  c.negativeGain = 0.9f;
  // 6 / 4 -> 1.5 -> clipped to 1 -> noise beyond the bound stays.
  EXPECT_FLOAT_EQ(convertedInput(c, 6.0f, 4.0f, 0.2f, 0.0f), 1.1f);
  // -1 / 4 is a level; noise first, then the asymmetry.
  EXPECT_FLOAT_EQ(convertedInput(c, -1.0f, 4.0f, -0.5f, 0.0f), 0.9f * -0.5f);
  EXPECT_FLOAT_EQ(convertedInput(c, -1.0f, 4.0f, 1.0f, 0.0f), 0.25f);
  // A scale of 0 belongs to a zero row.
  EXPECT_EQ(convertedInput(InputConverter{}, 0.0f, 0.0f, 0.0f, 0.0f), 0.0f);
}

TEST(Input, SignPartsAddUp) {
  for (float v : {-0.7f, 0.0f, 0.3f}) {
    EXPECT_EQ(signPart(v, 0) + signPart(v, 1), v);
    EXPECT_GE(signPart(v, 0), 0.0f);
    EXPECT_LE(signPart(v, 1), 0.0f);
  }
}

TEST(Array, IrDropFollowsItsFormula) {
  ArrayEffects e;
  e.irDrop = 0.7f;
  e.wireScale = 0.01f;
  const LineSums in{2.0f, 30.0f, 1.5f, 0.0f, 0.0f};
  const double a = 0.3;
  const double drop = 0.7 * a * (0.05 * a * a - 0.2 * a + 0.5) * 1.5;
  EXPECT_NEAR(arrayOutput(e, in, 0.0f, 0.0f), 2.0 - drop, 1e-6);
  EXPECT_FLOAT_EQ(lateness(0, 4), 0.0f);
  EXPECT_FLOAT_EQ(lateness(3, 4), 1.0f - 1.0f / 16.0f);
}

TEST(Array, LineVoltageIsTheDifferenceToTheReferenceLine) {
  ArrayEffects e;
  e.lineVoltage = true;
  e.negativeWMin = 0.6f;
  e.seriesResistance = 0.05f;
  e.maxSeries = 0.1f;
  const LineSums in{-1.0f, 0.0f, 0.0f, 0.0f, 5.0f};
  const double reference = 3.0, v = 0.02;
  const double expected = (1 - v) * 2.0 / 1.1 - (1 + v) * reference / 1.1;  // both at the limit
  EXPECT_NEAR(arrayOutput(e, in, float(v), 0.0f), expected, 1e-6);
  e.maxSeries = kInfinity;
  const double free = (1 - v) * 2.0 / (1 + 0.05 * 2.0) - (1 + v) * 3.0 / (1 + 0.05 * 3.0);
  EXPECT_NEAR(arrayOutput(e, in, float(v), 0.0f), free, 1e-6);
}

TEST(Array, WeightNoiseGrowsWithTheRootOfItsSquares) {
  ArrayEffects e;
  e.weightNoise = 0.1f;
  EXPECT_NEAR(arrayOutput(e, {1.0f, 0.0f, 0.0f, 4.0f, 0.0f}, 0.0f, -1.5f), 1.0 - 0.3, 1e-6);
}

TEST(Output, AmplifierCompressesAndWeakensNegativeSums) {
  OutputConverter c;
  c.gain = 1.2f;
  c.negativeGain = 0.9f;
  EXPECT_NEAR(amplified(c, 2.0f, 0.1f), 1.2 * 2.0 / 1.2, 1e-6);
  EXPECT_NEAR(amplified(c, -2.0f, 0.1f), 0.9 * -2.0, 1e-6);
}

TEST(Output, NoiseIsDigitisedThenClippedAndReported) {
  OutputConverter c;
  c.adc = Converter(0.5, 2.0f, false);
  c.lowest = -2.0f;
  EXPECT_EQ(digitised(c, 1.0f, 0.1f, 2.0f, 0.0f).value, 1.0f);
  EXPECT_EQ(digitised(c, 1.0f, 0.1f, 3.0f, 0.0f).value, 1.5f);
  EXPECT_EQ(digitised(c, 2.2f, 0.0f, 0.0f, 0.0f).clipped, 0U);  // rounds to the bound
  const Reading high = digitised(c, 2.3f, 0.0f, 0.0f, 0.0f);
  EXPECT_EQ(high.value, 2.0f);
  EXPECT_EQ(high.clipped, 1U);
  const Reading low = digitised(c, -2.3f, 0.0f, 0.0f, 0.0f);
  EXPECT_EQ(low.value, -2.0f);
  EXPECT_EQ(low.clipped, 1U);
  c.lowest = -kInfinity;
  EXPECT_EQ(digitised(c, -2.3f, 0.0f, 0.0f, 0.0f).clipped, 0U);
}

TEST(Scale, EachNoiseManagementFollowsItsDefinition) {
  const Vector mixed = {0.5f, -2.0f, 1.0f}, negative = {-0.5f, -2.0f}, zero = {0.0f, 0.0f};
  const auto scale = [](NoiseManagement management, const Vector &row) {
    ScaleRule rule;
    rule.management = management;
    rule.constant = 3.0f;
    rule.limit = 1.5f;
    rule.largestFactor = 4.0f;
    rule.weightOverBound = 2.5f;
    const VectorView<const float> view(row.data(), int64_t(row.size()));
    return noiseScale(rule, view, reducedRow<reduce::AbsLargest>(view));
  };
  EXPECT_EQ(scale(NoiseManagement::None, mixed), 1.0f);
  EXPECT_EQ(scale(NoiseManagement::AbsMax, mixed), 1.5f);
  EXPECT_EQ(scale(NoiseManagement::AbsMax, {0.25f, -1.25f}), 1.25f);
  EXPECT_EQ(scale(NoiseManagement::Max, mixed), 1.0f);
  EXPECT_EQ(scale(NoiseManagement::Max, negative), 1.0f);
  EXPECT_EQ(scale(NoiseManagement::Max, zero), 0.0f);
  EXPECT_EQ(scale(NoiseManagement::Constant, zero), 3.0f);
  EXPECT_EQ(scale(NoiseManagement::AverageAbsMax, mixed), 2.0f);
  EXPECT_EQ(scale(NoiseManagement::AbsMaxNPSum, mixed), 5.0f);                  // 2 * 2.5
  EXPECT_EQ(scale(NoiseManagement::AbsMaxNPSum, negative), 2.5f * 2.5f);        // below 4 * 2
  EXPECT_EQ(scale(NoiseManagement::AbsMaxNPSum, {-1.0f, -1.0f, -1.0f}), 4.0f);  // the limit
  EXPECT_EQ(runningMean(0.0f, 2.0f, 0.25f), 2.0f);
  EXPECT_EQ(runningMean(2.0f, 4.0f, 0.25f), 2.5f);
}

TEST(Scale, ReducedRowsAreTheSumsAndMaximaForAnyLengthAndStride) {
  for (int64_t n : {0, 1, 15, 16, 17, 100}) {
    Vector storage(size_t(2 * n + 1));
    for (size_t j = 0; j < storage.size(); ++j) storage[j] = std::sin(float(j) * 1.7f);
    const VectorView<const float> row(storage.data(), n, 2);
    double sum = 0, squares = 0, positive = 0, negative = 0;
    float largest = -kInfinity, absLargest = 0.0f;
    for (int64_t j = 0; j < n; ++j) {
      sum += double(row[j]);
      squares += double(row[j]) * double(row[j]);
      positive += std::fmax(double(row[j]), 0.0);
      negative += std::fmax(-double(row[j]), 0.0);
      largest = std::fmax(largest, row[j]);
      absLargest = std::fmax(absLargest, std::fabs(row[j]));
    }
    EXPECT_NEAR(reducedRow<reduce::Sum>(row), sum, 1e-5);
    EXPECT_NEAR(reducedRow<reduce::Squares>(row), squares, 1e-5);
    EXPECT_NEAR(reducedRow<reduce::PositiveSum>(row), positive, 1e-5);
    EXPECT_NEAR(reducedRow<reduce::NegativeSum>(row), negative, 1e-5);
    EXPECT_EQ(reducedRow<reduce::Largest>(row), largest);
    EXPECT_EQ(reducedRow<reduce::AbsLargest>(row), absLargest);
  }
}

// --- row loops against functors
// -------------------------------------------------------------------

Vector waves(int64_t size, float pitch) {
  Vector v(static_cast<size_t>(size));
  for (size_t i = 0; i < v.size(); ++i) v[i] = std::sin(pitch * float(i) + 0.3f);
  return v;
}

void expectSameBits(const Vector &a, const Vector &b, const std::string &what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << what;
}

// A stage's arrays, and the stage that points to them.
struct InputCase {
  static constexpr int64_t kRows = 21, kCols = 147;
  Vector in = waves(kRows * kCols, 0.37f);
  std::vector<int32_t> list = {0, 1, 2, 5, 6, 7, 8, 11, 12, 13, 19, 20};
  Vector scale = Vector(kRows), worst = Vector(kRows);
  std::vector<int32_t> round = std::vector<int32_t>(kRows),
                       clipped = std::vector<int32_t>(kRows, 7);
  Vector converted = Vector(2 * kRows * kCols), sums = Vector(2 * kRows),
         squares = Vector(2 * kRows);
  InputStage stage{};

  InputCase(NoiseManagement management, int passes, bool noisy, bool stochastic, bool strided) {
    stage.in = strided ? colMajor<const float>(in.data(), kRows, kCols)
                       : rowMajor<const float>(in.data(), kRows, kCols);
    stage.list = {nullptr, kRows};
    stage.state = {scale.data(), worst.data(), round.data(), clipped.data()};
    stage.draws = {makeKey(4, 5, 6), Purpose::ForwardInputNoise, Purpose::ForwardWeightNoise,
                   Purpose::ForwardInputRound, 1003};
    stage.rule.management = management;
    stage.rule.constant = 0.7f;
    stage.rule.largestFactor = 30.0f;
    stage.rule.weightOverBound = 0.05f;
    stage.converter = {Converter(1.0 / 63, 1.0f, stochastic), noisy ? 0.05f : 0.0f, 0.95f};
    stage.passes = passes;
    stage.converted = converted.data();
    stage.sums = sums.data();
    stage.squares = squares.data();
  }

  // The second read of some rows.
  void repeatList() {
    for (int32_t i : list) round[size_t(i)] = i < 8 ? 1 : 2;
    stage.list = {list.data(), int64_t(list.size())};
  }
};

template <class Functor>
void apply(int64_t size, const Functor &functor) {
  for (int64_t i = 0; i < size; ++i) functor(i);
}

TEST(Kernels, InputsAreThoseOfTheFunctorsOnEveryInstructionSet) {
  for (int variant = 0; variant < 32; ++variant) {
    const auto management = variant & 8 ? NoiseManagement::AbsMaxNPSum : NoiseManagement::AbsMax;
    const auto make = [&] {
      return InputCase(management, variant & 1 ? 2 : 1, variant & 2, variant & 4, variant & 16);
    };
    InputCase plain = make();
    apply(InputCase::kRows, MeasureRow{plain.stage});
    apply(InputCase::kRows * InputCase::kCols, ConvertInput{plain.stage});
    apply(plain.stage.passes * InputCase::kRows, SumConverted{plain.stage});
    InputCase plainAgain = make();
    apply(InputCase::kRows, MeasureRow{plainAgain.stage});
    plainAgain.repeatList();
    const int64_t count = plainAgain.stage.list.count;
    apply(count * InputCase::kCols, ConvertInput{plainAgain.stage});
    apply(plain.stage.passes * count, SumConverted{plainAgain.stage});
    for (Isa isa : supportedIsas()) {
      const std::string what = message("variant ", variant, ", ", isaName(isa));
      const auto kernel = withIsa(isa, [](auto i) { return &convertInputs<i>; });
      InputCase fast = make();
      kernel(fast.stage, true, 0, 9);
      kernel(fast.stage, true, 9, InputCase::kRows);
      expectSameBits(fast.scale, plain.scale, what);
      expectSameBits(fast.worst, plain.worst, what);
      expectSameBits(fast.converted, plain.converted, what);
      expectSameBits(fast.sums, plain.sums, what);
      expectSameBits(fast.squares, plain.squares, what);
      EXPECT_EQ(fast.clipped, plain.clipped) << what;
      InputCase again = make();
      withIsa(isa, [](auto i) { return &measureInputs<i>; })(again.stage, 0, InputCase::kRows);
      again.repeatList();
      kernel(again.stage, false, 0, 5);
      kernel(again.stage, false, 5, count);
      expectSameBits(again.converted, plainAgain.converted, what);
    }
  }
}

struct OutputCase {
  static constexpr int64_t kRows = 19, kCols = 139;
  Vector sums = waves(2 * kRows * kCols, 0.11f), absSums = waves(2 * kRows * kCols, 0.13f);
  Vector lateSums = waves(2 * kRows * kCols, 0.17f), squareSums = waves(2 * kRows * kCols, 0.19f);
  Vector inputSums = waves(2 * kRows, 0.5f), inputSquares = Vector(2 * kRows, 0.7f);
  Vector noise = Vector(kCols, 0.06f), offset = Vector(kCols, 0.02f), bend = Vector(kCols, 0.1f);
  std::vector<int32_t> list = {0, 1, 2, 5, 6, 7, 8, 11, 12, 13, 17, 18};
  Vector scale = Vector(kRows), out = Vector(kRows * kCols);
  std::vector<int32_t> round = std::vector<int32_t>(kRows), clipped = std::vector<int32_t>(kRows);
  OutputStage stage{};

  OutputCase(Passes passes, bool effects, bool stochastic, bool noisy, bool listed, bool strided) {
    for (float &v : squareSums) v = v * v;
    for (size_t i = 0; i < scale.size(); ++i) {
      scale[i] = 0.5f + float(i);
      round[i] = i < 9 ? 0 : 3;
    }
    if (!effects) offset = bend = Vector(kCols, 0.0f);
    if (!noisy) noise = Vector(kCols, 0.0f);
    stage.sums = sums.data();
    stage.absSums = effects ? absSums.data() : nullptr;
    stage.lateSums = effects ? lateSums.data() : nullptr;
    stage.squareSums = effects && stochastic ? squareSums.data() : nullptr;
    stage.inputSums = effects ? inputSums.data() : nullptr;
    stage.inputSquares = effects ? inputSquares.data() : nullptr;
    stage.out = strided ? colMajor(out.data(), kRows, kCols) : rowMajor(out.data(), kRows, kCols);
    stage.list = listed ? RowList{list.data(), int64_t(list.size())} : RowList{nullptr, kRows};
    stage.state = {scale.data(), nullptr, round.data(), clipped.data()};
    stage.draws = {makeKey(4, 5, 6), Purpose::ForwardOutputNoise, Purpose::ForwardWeightNoise,
                   Purpose::ForwardOutputRound, (uint64_t{1} << 32) - 5};
    stage.lineNoise = noise.data();
    stage.lineOffset = offset.data();
    stage.lineBend = bend.data();
    if (effects) stage.effects = {0.2f, 1.0f, true, 0.6f, 0.05f, 0.3f, 0.03f};
    stage.converter.gain = effects ? 1.1f : 1.0f;
    stage.converter.negativeGain = effects ? 0.9f : 1.0f;
    stage.converter.adc = Converter(1.0 / 255, 0.9f, stochastic);
    stage.converter.lowest = -0.9f;
    stage.passes = passes;
    stage.hasEffects = effects;
    stage.noisy = noisy;
    stage.outScale = 1.5f;
  }
};

TEST(Kernels, OutputsAreThoseOfTheFunctorOnEveryInstructionSet) {
  for (Passes passes : {Passes::One, Passes::AnalogSum, Passes::DigitalSum}) {
    for (int variant = 0; variant < 32; ++variant) {
      const auto make = [&] {
        return OutputCase(passes, variant & 1, variant & 2, variant & 4, variant & 8, variant & 16);
      };
      OutputCase plain = make();
      apply(plain.stage.list.count * OutputCase::kCols, FinishOutput{plain.stage});
      int32_t clippedRows = 0;
      for (int32_t c : plain.clipped) clippedRows += c;
      EXPECT_GT(clippedRows, 0);
      for (Isa isa : supportedIsas()) {
        const std::string what =
            message("passes ", int(passes), ", variant ", variant, ", ", isaName(isa));
        const auto kernel = withIsa(isa, [](auto i) { return &finishOutputs<i>; });
        OutputCase fast = make();
        kernel(fast.stage, 0, 3);
        kernel(fast.stage, 3, fast.stage.list.count);
        expectSameBits(fast.out, plain.out, what);
        EXPECT_EQ(fast.clipped, plain.clipped) << what;
      }
    }
  }
}

// --- parameters
// -----------------------------------------------------------------------------------

TEST(IOParameters, HasTheDefaultsOfTheField) {
  const IOParameters p;
  EXPECT_NO_THROW(checkParams(p, "forward"));
  EXPECT_NEAR(p.inputStep(), 1.0 / 63, 1e-9);
  EXPECT_NEAR(p.outputStep(), 24.0 / 510, 1e-8);
  EXPECT_EQ(p.doublings(), 4);  // 16 is the first power of two from 0.25 * 63 = 15.75 up
}

TEST(IOParameters, AResolutionAboveOneIsANumberOfSteps) {
  IOParameters steps, fraction;
  steps.inp_res = 10.0f;
  steps.out_res = 16.0f;
  fraction.inp_res = 0.1f;
  fraction.out_res = 1.0f / 16.0f;
  EXPECT_NEAR(steps.inputStep(), fraction.inputStep(), 1e-7);
  EXPECT_EQ(steps.outputStep(), fraction.outputStep());
  EXPECT_EQ(steps.doublings(), fraction.doublings());
}

TEST(IOParameters, DoublingsEndAtTheFactorOrTheResolution) {
  IOParameters p;
  p.inp_res = 0.0f;
  EXPECT_EQ(p.doublings(), 10);  // 1024 is the first power of two from 1000 up
  p.max_bm_factor = 16.0f;
  EXPECT_EQ(p.doublings(), 4);
  p.max_bm_factor = 1.0f;
  EXPECT_EQ(p.doublings(), 0);
  p.max_bm_factor = 1000.0f;
  p.inp_res = 0.5f;
  EXPECT_EQ(p.doublings(), 0);
}

template <class Change>
std::string refusal(const Change &change) {
  IOParameters p;
  change(p);
  try {
    checkParams(p, "tile.forward");
  } catch (const ConfigError &error) {
    p.is_perfect = true;
    EXPECT_NO_THROW(p.check("tile.forward")) << "a perfect read ignores the others";
    return error.what();
  }
  return "accepted";
}

TEST(IOParameters, ContradictionsAreRefusedByName) {
  using P = IOParameters;
  const auto expect = [](const std::string &text, const char *name) {
    EXPECT_EQ(text.find(std::string("tile.forward.") + name), 0U) << text;
  };
  expect(refusal([](P &p) { p.out_bound = 0.0f; }), "out_res");
  expect(refusal([](P &p) { p.inp_bound = 0.0f; }), "inp_res");
  expect(refusal([](P &p) { p.inp_res = 10.5f; }), "inp_res");
  expect(refusal([](P &p) { p.out_res = 1.5f; }), "out_res");
  expect(refusal([](P &p) { p.inp_res = 0.0f, p.inp_sto_round = true; }), "inp_sto_round");
  expect(refusal([](P &p) { p.out_res = 0.0f, p.out_sto_round = true; }), "out_sto_round");
  expect(refusal([](P &p) { p.noise_management = NoiseManagement::Constant; }), "noise_management");
  expect(refusal([](P &p) {
           p.noise_management = NoiseManagement::AbsMaxNPSum;
           p.out_res = p.out_bound = 0.0f;
         }),
         "noise_management");
  expect(refusal([](P &p) { p.w_noise = 0.1f; }), "w_noise");
  expect(refusal([](P &p) { p.w_read_asymmetry_dtod = 0.1f; }), "w_read_asymmetry_dtod");
  expect(refusal([](P &p) { p.out_nonlinearity = 1.0f, p.out_res = p.out_bound = 0.0f; }),
         "out_nonlinearity");
  expect(refusal([](P &p) { p.slope_calibration = 1.0f, p.out_res = p.out_bound = 0.0f; }),
         "slope_calibration");
  expect(refusal([](P &p) { p.mv_type = MvType::Ideal, p.ir_drop = 1.0f; }), "mv_type");
  EXPECT_EQ(refusal([](P &p) { p.inp_res = p.inp_bound = p.out_res = p.out_bound = 0.0f; }),
            "accepted");
}

TEST(IOParameters, RangesAreChecked) {
  const auto read = [](const char *name, Value value) {
    return readParams<IOParameters>(Value(Value::Map{{name, std::move(value)}}), "forward");
  };
  EXPECT_THROW(read("out_noise", Value(-0.1)), ConfigError);
  EXPECT_THROW(read("nm_decay", Value(1.5)), ConfigError);
  EXPECT_THROW(read("v_offset_w_min", Value(0.5)), ConfigError);
  EXPECT_THROW(read("max_bm_factor", Value(0.5)), ConfigError);
  EXPECT_THROW(read("noise_management", Value("absmax")), ConfigError);
  EXPECT_THROW(read("out_bounds", Value(1.0)), ConfigError);
  EXPECT_EQ(read("noise_management", Value("abs_max_np_sum")).noise_management,
            NoiseManagement::AbsMaxNPSum);
}

}  // namespace
}  // namespace RPU
