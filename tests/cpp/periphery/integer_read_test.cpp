#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "core/check.h"
#include "periphery/analog_read_test_util.h"

// Reads whose product is in integers, against the definition in docs/reference/io.md: integers of
// 128 bits, one sample at a time, and the formulas of a line.

namespace pulsora::testing {
namespace {

constexpr double kBound = 0.6;
constexpr uint64_t kFirst = 1003;

/// One direction of a read by the definition.
class Definition {
 public:
  Definition(const IOParameters &p, Pass pass, const Matrix &w)
      : p_(p), pass_(pass), w_(w), integers_(integerWeights(p.weight_bits.value, kBound)) {
    const float bend = p.out_nonlinearity > 0.0f ? p.out_nonlinearity / p.out_bound : 0.0f;
    double sum = 0.0;
    for (int64_t i = 0; i < w.rows; ++i) {
      const auto z = [&](uint32_t what) {
        const Philox4 r = draw(kKey, Purpose::IoConstruct, static_cast<uint64_t>(i),
                               static_cast<uint64_t>(pass), what);
        return normalPair(r.v[0], r.v[1]).z0;
      };
      spreads_.push_back({pulsora::abs(p.out_noise * fma(p.out_noise_std, z(0), 1.0f)),
                          pulsora::max(p.v_offset_std * z(1), 0.0f),
                          pulsora::abs(bend * fma(p.out_nonlinearity_std, z(2), 1.0f))});
      sum += double(spreads_.back().bend);
    }
    output_.gain = static_cast<float>(p.outputGain(sum / double(w.rows)));
    output_.negativeGain = 1.0f - p.out_asymmetry;
    output_.adc = Converter(p.outputStep(), p.out_bound, p.out_sto_round);
    output_.lowest = p.bm_test_negative_bound ? -output_.adc.bound : -kInfinity;
    effects_ = {static_cast<float>(double(w.cols) / double(p.ir_drop_gw_div_gmax)),
                p.ir_drop,
                p.v_offset_std > 0.0f || p.r_series > 0.0f,
                -p.v_offset_w_min,
                p.r_series,
                p.r_series_max_total > 0.0f ? p.r_series_max_total : kInfinity,
                p.w_noise};
  }

  Vector read(const Vector &x, uint64_t sample) const {
    float absMax = 0.0f;
    for (float v : x) absMax = pulsora::max(absMax, pulsora::abs(v));
    const VectorView<const float> row(x.data(), w_.cols);
    float scale = noiseScale(scaleRule(p_), row, absMax);
    const bool manages = p_.bound_management != BoundManagement::None && pass_ == Pass::Forward;
    const bool worst = p_.bound_management == BoundManagement::IterativeWorstCase;
    const int repeats = !manages ? 0 : worst ? 1 : p_.doublings();
    for (int32_t round = 0;; ++round) {
      bool clipped = false;
      Vector y = readOnce(x, scale, sample, round, clipped);
      if (!clipped || round == repeats) return y;
      scale =
          worst ? pulsora::max(scale, worstCaseScale(scaleRule(p_), row, absMax)) : 2.0f * scale;
    }
  }

 private:
  Purpose purpose(Purpose forward, Purpose backward) const {
    return pass_ == Pass::Forward ? forward : backward;
  }
  float step() const { return static_cast<float>(p_.inputStep()); }

  std::vector<int32_t> levelsOf(const Vector &x, float scale, uint64_t sample,
                                int32_t round) const {
    const Converter dac(p_.inputStep(), p_.inp_bound, p_.inp_sto_round);
    const auto most = static_cast<int32_t>(std::lround(double(p_.inp_bound) / p_.inputStep()));
    std::vector<int32_t> levels;
    for (size_t j = 0; j < x.size(); ++j) {
      const float v = x[j] / (scale > 0.0f ? scale : 1.0f) * dac.perUnit;
      const Purpose p = purpose(Purpose::ForwardInputRound, Purpose::BackwardInputRound);
      const float u = uniform(draw(kKey, p, j, sample, 2U * static_cast<uint32_t>(round)).v[0]);
      const float whole = p_.inp_sto_round ? std::floor(v + u) : std::nearbyintf(v);
      levels.push_back(whole > float(most)    ? most
                       : whole < -float(most) ? -most
                                              : static_cast<int32_t>(whole));
    }
    return levels;
  }

  float deviationOf(int64_t line, int64_t j) const {
    const int64_t cell = pass_ == Pass::Forward ? line * w_.cols + j : j * w_.rows + line;
    const Philox4 r = draw(kKey, Purpose::IoConstruct, static_cast<uint64_t>(cell), 0, 3);
    return p_.w_read_asymmetry_dtod * normalPair(r.v[0], r.v[1]).z0;
  }

  LineSums sumsOf(int64_t line, const std::vector<int32_t> &levels, bool deviates) const {
    __int128 sum = 0;
    float deviation = 0.0f, magnitude = 0.0f, late = 0.0f, squares = 0.0f;
    Vector n;
    for (int32_t level : levels) n.push_back(static_cast<float>(level));
    for (size_t k = 0; k < levels.size(); ++k) {
      const auto j = static_cast<int64_t>(k);
      const float w = w_(line, j);
      sum += static_cast<__int128>(integerOf(integers_, w)) * levels[k];
      if (deviates) deviation = fma(n[k], w * deviationOf(line, j), deviation);
      magnitude = fma(pulsora::abs(n[k]), pulsora::abs(w), magnitude);
      late = fma(n[k] * lateness(j, w_.cols), w, late);
      squares = fma(n[k] * n[k], pulsora::abs(w), squares);
    }
    const float s = step();
    const VectorView<const float> row(n.data(), w_.cols);
    LineSums in;
    in.sum = static_cast<float>(static_cast<int64_t>(sum)) * (s * integers_.step);
    if (deviates) in.sum = fma(s, deviation, in.sum);
    if (p_.ir_drop > 0.0f) in.absSum = s * magnitude;
    if (p_.ir_drop > 0.0f) in.lateSum = s * late;
    in.squares = p_.w_noise_type == WeightNoiseType::PcmRead
                     ? s * s * squares
                     : reducedRow<reduce::Squares>(row) * (s * s);
    in.inputSum = p_.v_offset_w_min < 0.0f ? reducedRow<reduce::Sum>(row) * s : 0.0f;
    return in;
  }

  static std::vector<int32_t> sideOf(std::vector<int32_t> levels, bool negative) {
    for (int32_t &n : levels) n = (n < 0) == negative ? n : 0;
    return levels;
  }

  Vector readOnce(const Vector &x, float scale, uint64_t sample, int32_t round,
                  bool &clipped) const {
    const std::vector<int32_t> levels = levelsOf(x, scale, sample, round);
    const bool two = p_.splitsSigns();
    const float g = 1.0f - p_.inp_asymmetry;
    Vector y;
    for (int64_t i = 0; i < w_.rows; ++i) {
      LineSums in[2] = {sumsOf(i, levels, false), {}};
      if (two || p_.inp_asymmetry != 0.0f) {
        in[0] = sumsOf(i, sideOf(levels, false), false);
        LineSums minus = sumsOf(i, sideOf(levels, true), p_.w_read_asymmetry_dtod > 0.0f);
        if (two) {
          in[1] = {g == 1.0f ? minus.sum : minus.sum * g, minus.absSum * g, minus.lateSum * g,
                   minus.squares, minus.inputSum};
          // Sums of inputs are scaled before their unit.
          in[1].squares = scaled(in[1].squares, minus, levels, g);
          in[1].inputSum = inputSum(levels, true, g);
        } else {
          in[0].sum = fma(g, minus.sum, in[0].sum);
          in[0].absSum = fma(g, minus.absSum, in[0].absSum);
          in[0].lateSum = fma(g, minus.lateSum, in[0].lateSum);
          in[0].squares = joinedSquares(in[0].squares, minus.squares, levels, g);
          in[0].inputSum = joinedInputs(levels, g);
        }
      }
      OutputDraws draws[2];
      for (int pass = 0; pass < 2; ++pass) draws[pass] = drawsOf(i, sample, round, pass);
      const LineSpread &line = spreads_[static_cast<size_t>(i)];
      const Reading r =
          !two ? readLine<Passes::One, true>(effects_, output_, line, in, draws)
          : p_.mv_type == MvType::PosNegSeparate
              ? readLine<Passes::AnalogSum, true>(effects_, output_, line, in, draws)
              : readLine<Passes::DigitalSum, true>(effects_, output_, line, in, draws);
      clipped = clipped || r.clipped != 0;
      y.push_back(r.value * (scale * p_.out_scale));
    }
    return y;
  }

  template <class Rule>
  float reducedSide(const std::vector<int32_t> &levels, bool negative) const {
    Vector n;
    for (int32_t level : sideOf(levels, negative)) n.push_back(static_cast<float>(level));
    return reducedRow<Rule>({n.data(), w_.cols});
  }
  float inputSum(const std::vector<int32_t> &levels, bool negative, float g) const {
    if (p_.v_offset_w_min == 0.0f) return 0.0f;
    return reducedSide<reduce::Sum>(levels, negative) * g * step();
  }
  float joinedInputs(const std::vector<int32_t> &levels, float g) const {
    if (p_.v_offset_w_min == 0.0f) return 0.0f;
    return fma(g, reducedSide<reduce::Sum>(levels, true), reducedSide<reduce::Sum>(levels, false)) *
           step();
  }
  float scaled(float squares, const LineSums &, const std::vector<int32_t> &levels, float g) const {
    if (p_.w_noise_type == WeightNoiseType::PcmRead) return squares * (g * g);
    return reducedSide<reduce::Squares>(levels, true) * (g * g) * (step() * step());
  }
  float joinedSquares(float plus, float minus, const std::vector<int32_t> &levels, float g) const {
    if (p_.w_noise_type == WeightNoiseType::PcmRead) return fma(g * g, minus, plus);
    return fma(g * g, reducedSide<reduce::Squares>(levels, true),
               reducedSide<reduce::Squares>(levels, false)) *
           (step() * step());
  }

  OutputDraws drawsOf(int64_t line, uint64_t sample, int32_t round, int pass) const {
    const auto element = static_cast<uint64_t>(line);
    const uint32_t index = drawIndex(round, pass);
    OutputDraws draws;
    draws.weight =
        normalOfSample(kKey, purpose(Purpose::ForwardWeightNoise, Purpose::BackwardWeightNoise),
                       element, sample, index);
    draws.noise =
        normalOfSample(kKey, purpose(Purpose::ForwardOutputNoise, Purpose::BackwardOutputNoise),
                       element, sample, index);
    draws.round =
        uniform(draw(kKey, purpose(Purpose::ForwardOutputRound, Purpose::BackwardOutputRound),
                     element, sample, index)
                    .v[0]);
    return draws;
  }

  IOParameters p_;
  Pass pass_;
  const Matrix &w_;
  IntegerWeights integers_;
  std::vector<LineSpread> spreads_;
  OutputConverter output_;
  ArrayEffects effects_;
};

struct Setting {
  std::string name;
  IOParameters io;
  Pass pass = Pass::Forward;
};

std::vector<Setting> settings() {
  std::vector<Setting> all;
  const auto add = [&](const char *name, auto change) {
    for (Pass pass : {Pass::Forward, Pass::Backward}) {
      for (int bits : {24, 16}) {
        IOParameters io;
        io.weight_bits = bits;
        change(io);
        all.push_back({name, io, pass});
      }
    }
  };
  const auto wires = [](IOParameters &io) {
    io.ir_drop = 1.0f;
    io.ir_drop_gw_div_gmax = 60.0f;
    io.v_offset_std = 0.1f;
    io.r_series = 0.02f;
  };
  add("defaults", [](IOParameters &) {});
  add("ideal", [](IOParameters &io) { io.mv_type = MvType::Ideal; });
  add("clips", [](IOParameters &io) { io.out_bound = 1.0f; });
  add("worst case", [](IOParameters &io) {
    io.out_bound = 1.0f;
    io.bound_management = BoundManagement::IterativeWorstCase;
  });
  add("rounds", [](IOParameters &io) { io.inp_sto_round = io.out_sto_round = true; });
  add("fine", [](IOParameters &io) { io.inp_res = 1.0f / 30000.0f; });
  add("asymmetry", [](IOParameters &io) { io.inp_asymmetry = 0.2f; });
  add("wires", wires);
  add("noise", [](IOParameters &io) {
    io.w_noise = 0.05f;
    io.w_noise_type = WeightNoiseType::AdditiveConstant;
  });
  for (MvType type : {MvType::OnePass, MvType::PosNegSeparate, MvType::PosNegSeparateDigitalSum}) {
    for (float asymmetry : {0.0f, -0.1f}) {
      add("all", [&](IOParameters &io) {
        wires(io);
        io.mv_type = type;
        io.inp_asymmetry = asymmetry;
        io.inp_sto_round = true;
        io.out_bound = 2.0f;
        io.out_noise_std = 0.2f;
        io.out_asymmetry = 0.05f;
        io.out_scale = 0.5f;
        io.w_noise = 0.02f;
        io.w_noise_type = WeightNoiseType::PcmRead;
        io.w_read_asymmetry_dtod = type == MvType::OnePass ? 0.0f : 0.1f;
        io.out_nonlinearity = 0.3f;
        io.out_nonlinearity_std = 0.2f;
        io.slope_calibration = 0.3f;
      });
      add("additive", [&](IOParameters &io) {
        io.mv_type = type;
        io.inp_asymmetry = asymmetry;
        io.w_noise = 0.02f;
        io.w_noise_type = WeightNoiseType::AdditiveConstant;
        io.v_offset_std = 0.1f;
        io.r_series = 0.02f;
      });
    }
  }
  return all;
}

AnalogRead integerRead(const Setting &s, const Matrix &w) {
  AnalogRead read(Context{}, s.io, s.pass, w.cols, w.rows, kKey);
  read.setWeightBound(kBound);
  EXPECT_EQ(read.whyNoIntegers(), "");
  return read;
}

TEST(IntegerRead, Property41_EqualsTheDefinitionToTheBit) {
  const Matrix w = Matrix::random(19, 45, 0.6f, 1), x = Matrix::random(11, 45, 2.0f, 2);
  for (const Setting &s : settings()) {
    Matrix y(x.rows, w.rows), expected(x.rows, w.rows);
    integerRead(s, w).run({}, w.view(), x.view(), y.view(), kFirst);
    const Definition definition(s.io, s.pass, w);
    for (int64_t i = 0; i < x.rows; ++i) {
      const auto first = x.values.begin() + i * x.cols;
      const Vector row =
          definition.read({first, first + x.cols}, kFirst + static_cast<uint64_t>(i));
      std::copy(row.begin(), row.end(), expected.values.begin() + i * w.rows);
    }
    EXPECT_TRUE(sameBits(y, expected))
        << s.name << ", bits " << s.io.weight_bits.value << ", type "
        << static_cast<int>(s.io.mv_type) << ", asymmetry " << s.io.inp_asymmetry;
  }
}

TEST(IntegerRead, Property37_DoesNotDependOnInstructionSetThreadsOrSplit) {
  const Matrix w = Matrix::random(70, 150, 0.6f, 1), x = Matrix::random(101, 150, 1.0f, 2);
  for (const Setting &s : settings()) {
    Matrix expected(x.rows, w.rows), y(x.rows, w.rows);
    integerRead(s, w).run(contextOf(Isa::V2, 1), w.view(), x.view(), expected.view(), kFirst);
    for (Isa isa : supportedIsas()) {
      for (int threads : {1, 3}) {
        integerRead(s, w).run(contextOf(isa, threads), w.view(), x.view(), y.view(), kFirst);
        EXPECT_TRUE(sameBits(y, expected)) << s.name << ", " << isaName(isa) << ", " << threads;
      }
    }
    AnalogRead read = integerRead(s, w);
    int64_t row = 0;
    for (int64_t rows : {1, 2, 0, 13, 20, 1, 64}) {
      read.run({}, w.view(), x.view().block(row, 0, rows, x.cols),
               y.view().block(row, 0, rows, w.rows), kFirst + static_cast<uint64_t>(row));
      row += rows;
    }
    EXPECT_TRUE(sameBits(y, expected)) << s.name;
  }
}

TEST(IntegerRead, IsTheReadInFloatingPointToRounding) {
  const Matrix w = Matrix::random(19, 45, 0.6f, 1), x = Matrix::random(11, 45, 2.0f, 2);
  IOParameters io;
  io.out_res = 0.0f;
  io.weight_bits = 24;
  Matrix y(x.rows, w.rows);
  integerRead({"", io}, w).run({}, w.view(), x.view(), y.view(), kFirst);
  const Matrix floats = readAll(io, w, x, {}, Pass::Forward, kFirst);
  for (size_t i = 0; i < y.values.size(); ++i) EXPECT_NEAR(y.values[i], floats.values[i], 2e-5f);
}

TEST(IntegerRead, StaysInFloatingPointWhereInputsOrWeightsAreNoIntegers) {
  const auto why = [](double bound, int64_t inputs, auto change) {
    IOParameters io;
    io.weight_bits = 24;
    change(io);
    AnalogRead read(Context{}, io, Pass::Forward, inputs, 2, kKey);
    read.setWeightBound(bound);
    return read.whyNoIntegers();
  };
  const auto has = [](const std::string &text, const char *part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  EXPECT_EQ(why(0.6, 8, [](IOParameters &) {}), "");
  has(why(std::numeric_limits<double>::infinity(), 8, [](IOParameters &) {}), "no bound");
  has(why(0.6, int64_t{1} << 25, [](IOParameters &) {}), "exceed");
  has(why(0.6, 8, [](IOParameters &io) { io.inp_noise = 0.1f; }), "inp_noise");
  has(why(0.6, 8, [](IOParameters &io) { io.inp_res = io.inp_bound = 0.0f; }), "continuous");
  has(why(0.6, 8, [](IOParameters &io) { io.inp_res = 1.0f / 127.0f; }), "whole number");
  has(why(0.6, 8, [](IOParameters &io) { io.inp_res = 40000.0f; }), "levels on each side");
  has(why(0.6, 8, [](IOParameters &io) { io.is_perfect = true; }), "is_perfect");
  has(why(0.6, 8, [](IOParameters &io) { io.weight_bits = 32; }), "weight_bits");
}

}  // namespace
}  // namespace pulsora::testing
