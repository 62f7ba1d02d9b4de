#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "core/check.h"
#include "forecast/rollout_test_util.h"

namespace pulsora {
namespace {

using Doubles = std::vector<double>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// The definition, in double precision, one row at a time.
struct Reference {
  const Ensemble &e;
  Doubles means, logVariances, last;

  Reference(const Ensemble &ensemble, const Floats &features, int64_t rows, int64_t steps,
            bool feedback, const float *first)
      : e(ensemble) {
    for (int64_t m = 0; m < e.shape.members; ++m) {
      for (int64_t b = 0; b < rows; ++b) {
        const float *h0 = first ? first + (m * rows + b) * e.shape.hidden : nullptr;
        roll(m, features.data() + b * e.shape.inputs, steps, feedback, h0);
      }
    }
  }

  void roll(int64_t m, const float *f, int64_t steps, bool feedback, const float *first) {
    const EnsembleShape &s = e.shape;
    const float *We = e.encoder.data() + m * s.inputs * s.encoded;
    Doubles h(static_cast<size_t>(s.hidden));
    for (int64_t i = 0; first && i < s.hidden; ++i) h[static_cast<size_t>(i)] = first[i];
    double d = 0.0;
    double mu = 0.0;
    for (int64_t j = 1; j <= steps; ++j) {
      Doubles x;
      for (int64_t o = 0; o < s.encoded; ++o) {
        double sum = e.encoderBias[static_cast<size_t>(m * s.encoded + o)];
        for (int64_t i = 0; i < s.inputs; ++i) sum += double{f[i]} * double{We[i * s.encoded + o]};
        if (feedback) sum += d * double{We[o]};
        x.push_back(sum > 0.0 || sum != sum ? sum : 0.0);
      }
      h = unit(m, x, h);
      const float *heads = e.heads.data() + m * s.hidden * 2;
      double v = e.logVarianceBias[static_cast<size_t>(m)] + std::log(static_cast<double>(j));
      d = 0.0;
      for (int64_t i = 0; i < s.hidden; ++i) {
        d += h[static_cast<size_t>(i)] * double{heads[2 * i]};
        v += h[static_cast<size_t>(i)] * double{heads[2 * i + 1]};
      }
      means.push_back(mu += d);
      logVariances.push_back(v);
    }
    last.insert(last.end(), h.begin(), h.end());
  }

  Doubles unit(int64_t m, const Doubles &x, const Doubles &h) const {
    const EnsembleShape &s = e.shape;
    const int64_t H = s.hidden;
    const float *W = e.input.data() + m * s.encoded * 3 * H;
    const float *U = e.recurrent.data() + m * H * 3 * H;
    const auto side = [&](const float *weights, const Doubles &in, int64_t column) {
      double sum = 0.0;
      for (size_t i = 0; i < in.size(); ++i) {
        sum += in[i] * double{weights[static_cast<int64_t>(i) * 3 * H + column]};
      }
      return sum;
    };
    const auto gate = [&](int64_t column) {
      const double a = side(W, x, column) + side(U, h, column) +
                       double{e.bias[static_cast<size_t>(m * 3 * H + column)]};
      return 1.0 / (1.0 + std::exp(-a));
    };
    Doubles reset;
    for (int64_t i = 0; i < H; ++i) reset.push_back(gate(H + i) * h[static_cast<size_t>(i)]);
    Doubles next;
    for (int64_t i = 0; i < H; ++i) {
      const double z = gate(i);
      const double recurrent =
          s.resetAfter ? gate(H + i) * (side(U, h, 2 * H + i) +
                                        double{e.candidateBias[static_cast<size_t>(m * H + i)]})
                       : side(U, reset, 2 * H + i);
      const double n = std::tanh(side(W, x, 2 * H + i) + recurrent +
                                 double{e.bias[static_cast<size_t>(m * 3 * H + 2 * H + i)]});
      next.push_back((1.0 - z) * h[static_cast<size_t>(i)] + z * n);
    }
    return next;
  }
};

struct Rolled {
  Floats states, last, means, logVariances;

  Rolled(const Ensemble &e, const Floats &features, int64_t rows, int64_t steps, bool feedback,
         const float *first = nullptr, int threads = 1, Isa isa = bestIsa()) {
    const EnsembleShape &s = e.shape;
    states.resize(static_cast<size_t>(s.members * rows * steps * s.hidden));
    last.resize(static_cast<size_t>(s.members * rows * s.hidden));
    means.resize(static_cast<size_t>(s.members * rows * steps));
    logVariances.resize(means.size());
    Context context;
    context.cpu.threads = threads;
    context.cpu.isa = isa;
    rollout(context, s, e.weights(), rowMajor(features.data(), rows, s.inputs), first, steps,
            feedback, {states.data(), last.data(), means.data(), logVariances.data()});
  }
};

/// The worked example: an encoder of two features, two hidden units.
Ensemble worked(bool after) {
  return {{1, 2, 3, 2, after},
          {.5f, -1.f, 2.f, .25f, .5f, 1.f},
          {.1f, .2f, .3f},
          {.1f, -.2f, .2f, .1f, -.4f, .3f, .3f, .4f, -.3f, .2f, .2f, -.1f, -.5f, .6f, .4f, -.1f,
           .5f, .2f},
          {.5f, -.3f, -.2f, .4f, .6f, -.5f, .1f, .2f, .3f, .1f, .2f, .7f},
          {.05f, -.05f, 0.f, .1f, -.1f, .2f},
          {.3f, -.2f},
          {1.f, 0.f, 0.f, 1.f},
          {0.f}};
}

TEST(Rollout, TheWorkedExample) {
  const Floats features = {1.0f, -2.0f};
  Floats out(3);
  const Ensemble e = worked(false);
  encode({}, rowMajor(features.data(), 1, 2), rowMajor(e.encoder.data(), 2, 3),
         vectorView(e.encoderBias.data(), 3), rowMajor(out.data(), 1, 3));
  EXPECT_FLOAT_EQ(out[0], 0.1f);
  EXPECT_EQ(out[1], 0.0f);
  EXPECT_FLOAT_EQ(out[2], 0.3f);
  const Floats first = {.5f, -.25f};
  const Doubles before = {.3017259293, -.0979191890, .1940883303,
                          .0377187857, .1344384680,  .1458490221};
  const Doubles after = {.3788925595,  -.1602507478, .3138225756,
                         -.0755337989, .2798223429,  -.0053403504};
  const Rolled a(e, features, 1, 3, false, first.data());
  const Rolled b(worked(true), features, 1, 3, false, first.data());
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(a.states[i], before[i], 2e-7);
    EXPECT_NEAR(b.states[i], after[i], 2e-7);
  }
  // The first head reads the first unit, the second the second.
  EXPECT_NEAR(a.means[2], .3017259293 + .1940883303 + .1344384680, 5e-7);
  EXPECT_NEAR(a.logVariances[2], .1458490221 + std::log(3.0), 5e-7);
}

TEST(Rollout, AgreesWithDoublePrecision) {
  for (const bool after : {false, true}) {
    for (const bool feedback : {false, true}) {
      const Ensemble e = makeEnsemble({3, 7, 9, 17, after}, 5);
      const Floats features = makeFeatures(4 * 7, 6);
      const Floats first = makeFeatures(3 * 4 * 17, 7);
      const Rolled got(e, features, 4, 12, feedback, first.data());
      const Reference expected(e, features, 4, 12, feedback, first.data());
      for (size_t i = 0; i < got.means.size(); ++i) {
        const double each = 1e-6 * static_cast<double>(1 + i % 12);
        EXPECT_NEAR(got.means[i], expected.means[i], 3 * each) << i;
        EXPECT_NEAR(got.logVariances[i], expected.logVariances[i], 3e-6);
      }
      for (size_t i = 0; i < got.last.size(); ++i) {
        EXPECT_NEAR(got.last[i], expected.last[i], 2e-6);
        const size_t row = i / 17;
        EXPECT_EQ(got.last[i], got.states[(row * 12 + 11) * 17 + i % 17]);
      }
    }
  }
}

TEST(Rollout, StepsDependOnNothingBehindThem) {
  for (const bool after : {false, true}) {
    const Ensemble e = makeEnsemble({2, 5, 6, 33, after}, 9);
    const Floats features = makeFeatures(3 * 5, 10);
    const Rolled whole(e, features, 3, 75, true);
    const Rolled part(e, features, 3, 7, true);
    const Rolled one(e, features, 3, 1, true);
    for (size_t row = 0; row < 6; ++row) {
      EXPECT_EQ(0, std::memcmp(&whole.means[row * 75], &part.means[row * 7], 7 * sizeof(float)));
      EXPECT_EQ(whole.means[row * 75], one.means[row]);
      EXPECT_EQ(whole.logVariances[row * 75], one.logVariances[row]);
    }
  }
}

TEST(Rollout, BitsDependOnNeitherThreadsNorInstructionSetNorOtherRows) {
  const Ensemble e = makeEnsemble({5, 8, 12, 40, true}, 11);
  const Floats features = makeFeatures(6 * 8, 12);
  const Rolled expected(e, features, 6, 9, true);
  for (const Isa isa : supportedIsas()) {
    for (const int threads : {1, 2, 4}) {
      const Rolled got(e, features, 6, 9, true, nullptr, threads, isa);
      EXPECT_EQ(0, std::memcmp(got.states.data(), expected.states.data(),
                               got.states.size() * sizeof(float)));
      EXPECT_EQ(got.means, expected.means);
    }
  }
  const Rolled alone(e, Floats(features.begin() + 8, features.begin() + 16), 1, 9, true);
  EXPECT_EQ(0, std::memcmp(alone.means.data(), &expected.means[9], 9 * sizeof(float)));
}

TEST(Rollout, ANanStaysInItsRow) {
  const Ensemble e = makeEnsemble({2, 4, 5, 8, false}, 13);
  Floats features = makeFeatures(3 * 4, 14);
  const Rolled clean(e, features, 3, 4, true);
  features[4] = kNan;
  const Rolled got(e, features, 3, 4, true);
  for (size_t m = 0; m < 2; ++m) {
    for (size_t j = 0; j < 4; ++j) {
      EXPECT_EQ(got.means[m * 12 + j], clean.means[m * 12 + j]);
      EXPECT_TRUE(std::isnan(got.means[m * 12 + 4 + j]));
      EXPECT_EQ(got.means[m * 12 + 8 + j], clean.means[m * 12 + 8 + j]);
    }
  }
}

TEST(Rollout, EmptyBatchesAndBadSizes) {
  const Ensemble e = makeEnsemble({1, 4, 5, 8, false}, 15);
  const Rolled nothing(e, {}, 0, 3, true);
  EXPECT_TRUE(nothing.means.empty());
  const Floats features = makeFeatures(4, 16);
  EXPECT_THROW(Rolled(e, features, 1, 76, true), InputError);
  EXPECT_THROW(Rolled(e, features, 1, 0, true), InputError);
  Ensemble wide = e;
  wide.shape.hidden = 513;
  EXPECT_THROW(Rolled(wide, features, 1, 1, true), InputError);
  EXPECT_THROW(
      rollout({}, e.shape, e.weights(), rowMajor(features.data(), 2, 2), nullptr, 1, true, {}),
      InputError);
}

}  // namespace
}  // namespace pulsora
