#include "periphery/read_kernels.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "core/isa_dispatch.h"
#include "periphery/line_formulas.h"

namespace pulsora {
namespace {

using Vector = std::vector<float>;

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
    stage.state = {scale.data(), worst.data(), round.data(), clipped.data(), nullptr};
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

TEST(Kernels, QuietInputsAreThoseOfTheFunctorOnEveryInstructionSet) {
  constexpr int64_t rows = InputCase::kRows;
  constexpr int64_t cols = InputCase::kCols;
  for (const bool strided : {false, true}) {
    for (const bool stochastic : {false, true}) {
      InputCase made(NoiseManagement::AbsMax, 1, false, stochastic, strided);
      for (size_t i = 0; i < made.scale.size(); ++i) made.scale[i] = 0.1f * float(i);  // 0 too
      Vector plain(rows * cols), fast(rows * cols);
      const auto quiet = [&](Vector &out) {
        const MatrixView<float> to =
            strided ? colMajor(out.data(), rows, cols) : rowMajor(out.data(), rows, cols);
        return QuietInput{made.stage.in, made.scale.data(), made.stage.converter, to};
      };
      apply(rows * cols, quiet(plain));
      for (Isa isa : supportedIsas()) {
        const auto kernel = withIsa(isa, [](auto i) { return &convertQuietly<i>; });
        kernel(quiet(fast), 0, 5);
        kernel(quiet(fast), 5, rows);
        expectSameBits(fast, plain, message(strided, stochastic, " ", isaName(isa)));
      }
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
    stage.state = {scale.data(), nullptr, round.data(), clipped.data(), nullptr};
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

}  // namespace
}  // namespace pulsora
