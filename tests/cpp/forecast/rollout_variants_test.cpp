#include <cmath>
#include <gtest/gtest.h>

#include "core/check.h"
#include "forecast/rollout_test_util.h"
#include "numerics/half.h"

// Rollouts with dropout, normalised states, predicted states and reads in half precision.

namespace pulsora {
namespace {

/// Results of further options: means, and as predicted states, with P = 1, what the heads read.
struct Variant {
  float dropout = 0.0f;
  bool normalised = false;
  bool half = false;
  bool after = false;
  int threads = 1;
  Isa isa = bestIsa();
};

struct Varied {
  Floats means, predicted;

  Varied(const Variant &v, int64_t rows, int64_t steps, int64_t samples = 1) {
    EnsembleShape s{2, 5, 8, 12, v.after};
    Ensemble e = makeEnsemble(s, 21);
    s.normalised = v.normalised;
    s.predicted = s.hidden;
    EnsembleWeights w = e.weights();
    const Floats gain(static_cast<size_t>(s.members * s.hidden), 1.0f);
    const Floats zero(gain.size(), 0.0f);
    Floats unit(gain.size() * static_cast<size_t>(s.hidden), 0.0f);
    for (int64_t i = 0; i < s.members * s.hidden; ++i) {
      unit[static_cast<size_t>(i * s.hidden + i % s.hidden)] = 1.0f;
    }
    if (v.normalised) {
      w.stateGain = gain.data();
      w.stateShift = zero.data();
    }
    w.projection = unit.data();
    w.projectionBias = zero.data();
    const Floats one = makeFeatures(rows * s.inputs, 22);
    Floats features;
    for (int64_t i = 0; i < samples; ++i) features.insert(features.end(), one.begin(), one.end());
    const int64_t all = rows * samples;
    means.resize(static_cast<size_t>(s.members * all * steps));
    predicted.resize(means.size() * static_cast<size_t>(s.hidden));
    Context context;
    context.cpu.threads = v.threads;
    context.cpu.isa = v.isa;
    RolloutOutputs out;
    out.mean = means.data();
    out.predicted = predicted.data();
    rollout(context, s, w, rowMajor(features.data(), all, s.inputs), nullptr, steps, true, out,
            {v.dropout, 17, rows, v.half});
  }
};

TEST(Rollout, NormalisedStatesHaveMean0AndVariance1) {
  for (const bool after : {false, true}) {
    const Varied got({0.0f, true, false, after}, 3, 4);
    for (size_t row = 0; row < got.predicted.size() / 12; ++row) {
      double sum = 0.0;
      double squares = 0.0;
      for (size_t i = 0; i < 12; ++i) {
        const double y = got.predicted[row * 12 + i];
        sum += y / 12.0;
        squares += y * y / 12.0;
      }
      EXPECT_NEAR(sum, 0.0, 1e-6);
      EXPECT_NEAR(squares, 1.0, 2e-2);  // 1e-5 is added to the variance
      EXPECT_LT(squares, 1.0 + 1e-6);
    }
  }
}

TEST(Rollout, AMaskStaysOverTheStepsOfARow) {
  const Varied got({0.5f}, 3, 6, 2);
  size_t dropped = 0;
  for (size_t row = 0; row < 2 * 6; ++row) {  // members, samples and rows
    for (size_t i = 0; i < 12; ++i) {
      const bool out = got.predicted[row * 6 * 12 + i] == 0.0f;
      for (size_t j = 1; j < 6; ++j) {
        EXPECT_EQ(got.predicted[(row * 6 + j) * 12 + i] == 0.0f, out);
      }
      dropped += out ? 1 : 0;
    }
  }
  EXPECT_NEAR(static_cast<double>(dropped), 72.0, 5.0 * 6.0);  // 144 units, 5 sigma
}

TEST(Rollout, VariantsHaveOneSetOfBits) {
  for (const bool after : {false, true}) {
    const Variant base{0.3f, true, true, after};
    const Varied expected(base, 5, 4, 3);
    for (const Isa isa : supportedIsas()) {
      for (const int threads : {1, 3}) {
        Variant v = base;
        v.threads = threads;
        v.isa = isa;
        const Varied got(v, 5, 4, 3);
        EXPECT_EQ(got.means, expected.means);
        EXPECT_EQ(got.predicted, expected.predicted);
      }
    }
  }
}

TEST(Rollout, WhatHeadsReadInHalfIsAHalf) {
  const Varied got({0.0f, false, true}, 4, 5);
  for (const float y : got.predicted) EXPECT_EQ(y, halfToFloat(floatToHalf(y)));
  const Varied exact({}, 4, 5);
  EXPECT_NE(got.means, exact.means);
  for (size_t i = 0; i < got.means.size(); ++i) EXPECT_NEAR(got.means[i], exact.means[i], 2e-2);
}

TEST(Rollout, OptionsOutOfRangeAreRefused) {
  EXPECT_THROW(Varied({1.0f}, 2, 2), InputError);
  EXPECT_THROW(Varied({-0.1f}, 2, 2), InputError);
  EXPECT_THROW(Varied({std::nanf("")}, 2, 2), InputError);
  const Ensemble e = makeEnsemble({1, 4, 5, 8, false}, 15);
  const Floats features = makeFeatures(4, 16);
  for (const bool normalised : {true, false}) {
    EnsembleShape s = e.shape;
    s.normalised = normalised;
    s.predicted = normalised ? 0 : 3;
    EXPECT_THROW(rollout({}, s, e.weights(), rowMajor(features.data(), 1, 4), nullptr, 1, true, {}),
                 InputError);
  }
}

}  // namespace
}  // namespace pulsora
