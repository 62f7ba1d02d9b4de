#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <vector>

#include "cuda/cuda_test_util.h"
#include "forecast/residual_memory.h"
#include "forecast/rollout.h"
#include "forecast/truncated_svd.h"
#include "linalg/initialise.h"
#include "numerics/random.h"

// The kernels of forecasts on a GPU: equal to the CPU's bits with reproducible products, and close
// with products of cuBLAS.

namespace pulsora::testing {
namespace {

using Floats = std::vector<float>;

Floats normal(int64_t count, uint64_t seed, float deviation) {
  Floats values(static_cast<size_t>(count));
  drawNormalRows({}, makeKey(seed, 5, 5), 0, deviation, rowMajor(values.data(), int64_t{1}, count));
  return values;
}

/// Arrays in a context's memory, kept until the end.
struct Place {
  Context context;
  std::vector<Buffer<float>> held;

  float *put(const Floats &values) {
    held.emplace_back(context, static_cast<int64_t>(values.size()));
    detail::copyFromHost(context, held.back().data(), values.data(), held.back().bytes());
    return held.back().data();
  }
  Floats take(const float *data, size_t count) const {
    Floats values(count);
    detail::copyToHost(context, values.data(), data, count * sizeof(float));
    return values;
  }
};

struct Rolling {
  EnsembleShape shape{3, 7, 24, 40, false};
  int64_t rows = 9;
  int64_t steps = 6;
  bool feedback = true;
  int64_t broken = -1;  // a row whose first feature is no number
  RolloutOptions options{};
};

/// All states, the last ones, means, logarithms of variances and predicted states, one behind the
/// other.
Floats rolled(const Context &context, const Rolling &r) {
  const EnsembleShape &s = r.shape;
  const int64_t gates = 3 * s.hidden;
  const auto deviation = [](int64_t lines) { return 1.0f / std::sqrt(static_cast<float>(lines)); };
  Place place{context, {}};
  const EnsembleWeights weights{
      place.put(normal(s.members * s.inputs * s.encoded, 1, deviation(s.inputs))),
      place.put(normal(s.members * s.encoded, 2, 0.1f)),
      place.put(normal(s.members * s.encoded * gates, 3, deviation(s.encoded))),
      place.put(normal(s.members * s.hidden * gates, 4, deviation(s.hidden))),
      place.put(normal(s.members * gates, 5, 0.1f)),
      s.resetAfter ? place.put(normal(s.members * s.hidden, 6, 0.2f)) : nullptr,
      place.put(normal(s.members * s.hidden * 2, 7, deviation(s.hidden))),
      place.put(normal(s.members, 8, 1.0f)),
      s.normalised ? place.put(normal(s.members * s.hidden, 11, 1.0f)) : nullptr,
      s.normalised ? place.put(normal(s.members * s.hidden, 12, 0.2f)) : nullptr,
      s.predicted ? place.put(normal(s.members * s.hidden * s.predicted, 13, deviation(s.hidden)))
                  : nullptr,
      s.predicted ? place.put(normal(s.members * s.predicted, 14, 1.0f)) : nullptr};
  Floats given = normal(r.rows * s.inputs, 9, 1.0f);
  if (r.broken >= 0) given[static_cast<size_t>(r.broken * s.inputs)] = std::nanf("");
  const float *features = place.put(given);
  const auto states = static_cast<size_t>(s.members * r.rows * s.hidden);
  // The first rows start alike, however many follow.
  const Floats one = normal(s.hidden, 10, 0.5f);
  Floats firsts;
  for (int64_t i = 0; i < s.members * r.rows; ++i)
    firsts.insert(firsts.end(), one.begin(), one.end());
  const float *first = place.put(firsts);
  const auto steps = static_cast<size_t>(r.steps);
  const auto sums = static_cast<size_t>(s.members * r.rows) * steps;
  float *all = place.put(Floats(states * steps));
  float *last = place.put(Floats(states));
  float *mean = place.put(Floats(sums));
  float *logVariance = place.put(Floats(sums));
  const size_t wide = sums * static_cast<size_t>(s.predicted);
  float *predicted = s.predicted ? place.put(Floats(wide)) : nullptr;
  rollout(context, s, weights, rowMajor(features, r.rows, s.inputs), first, r.steps, r.feedback,
          {all, last, mean, logVariance, predicted}, r.options);
  Floats result = place.take(all, states * steps);
  for (const Floats &part :
       {place.take(last, states), place.take(mean, sums), place.take(logVariance, sums),
        predicted ? place.take(predicted, wide) : Floats()}) {
    result.insert(result.end(), part.begin(), part.end());
  }
  return result;
}

TEST(CudaForecast, ReproducibleRolloutsAreThoseOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  for (const bool after : {false, true}) {
    Rolling r;
    r.shape.resetAfter = after;
    const Floats expected = rolled(cpuContext(), r);
    const Floats same = rolled(reproducibleGpu(), r);
    EXPECT_EQ(0, std::memcmp(same.data(), expected.data(), expected.size() * sizeof(float)));
  }
}

// Hidden units that fill blocks or not, weights that fit into shared memory or not, few and many
// rows.
TEST(CudaForecast, RolloutsInOneLaunchAreCloseToThoseOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  for (const bool after : {false, true}) {
    for (const auto &[hidden, encoded, rows] : {std::array<int64_t, 3>{256, 128, 32},
                                                {64, 64, 16},
                                                {512, 96, 14},
                                                {5, 3, 2},
                                                {40, 24, 9},
                                                {1, 1, 1},
                                                {256, 130, 70},
                                                {100, 200, 4}}) {
      for (const bool feedback : {true, false}) {
        for (const int64_t steps : {1, 12}) {
          const Rolling r{{5, 64, encoded, hidden, after}, rows, steps, feedback};
          const Floats expected = rolled(cpuContext(), r);
          const Floats close = rolled(gpuContext(), r);
          const float tolerance = steps == 1 ? 1e-5f : 1e-4f;
          float worst = 0.0f;
          for (size_t i = 0; i < expected.size(); ++i) {
            worst = std::max(
                worst, std::abs(close[i] - expected[i]) / std::max(1.0f, std::abs(expected[i])));
          }
          EXPECT_LE(worst, tolerance) << hidden << " units, " << rows << " rows, " << steps;
        }
      }
    }
  }
}

/// Dropout, 16 bits, a layer normalisation and predicted states, each with and without others.
std::vector<Rolling> variants() {
  std::vector<Rolling> found;
  for (const bool after : {false, true}) {
    for (const bool normalised : {false, true}) {
      for (const float dropout : {0.0f, 0.3f}) {
        for (const bool half : {false, true}) {
          Rolling r;
          r.shape.resetAfter = after;
          r.shape.normalised = normalised;
          r.shape.predicted = 11;
          r.options = {dropout, 19, 3, half};
          found.push_back(r);
        }
      }
    }
  }
  return found;
}

TEST(CudaForecast, ReproducibleVariantsAreThoseOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  for (const Rolling &r : variants()) {
    const Floats expected = rolled(cpuContext(), r);
    const Floats same = rolled(reproducibleGpu(), r);
    EXPECT_EQ(0, std::memcmp(same.data(), expected.data(), expected.size() * sizeof(float)));
  }
}

// A sum close to the middle of two halves may be rounded either way, 2^-11 of it apart.
TEST(CudaForecast, VariantsInOneLaunchAreCloseToThoseOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  for (Rolling r : variants()) {
    for (const auto &[hidden, encoded, rows] :
         {std::array<int64_t, 3>{256, 128, 36}, {40, 24, 9}, {512, 96, 15}}) {
      r.shape.hidden = hidden;
      r.shape.encoded = encoded;
      r.rows = rows;
      const Floats expected = rolled(cpuContext(), r);
      const Floats close = rolled(gpuContext(), r);
      const float tolerance = r.options.half ? 2e-2f : 1e-4f;
      double total = 0.0;
      for (size_t i = 0; i < expected.size(); ++i) {
        const float error = std::abs(close[i] - expected[i]);
        ASSERT_LE(error / std::max(1.0f, std::abs(expected[i])), tolerance) << i << ", " << hidden;
        total += static_cast<double>(error);
      }
      EXPECT_LE(total / static_cast<double>(expected.size()), r.options.half ? 1e-3 : 1e-5);
    }
  }
}

TEST(CudaForecast, MasksAreThoseOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  Rolling r;
  r.shape.hidden = 64;
  r.shape.predicted = 64;
  r.options = {0.5f, 23, 3, false};
  const Floats expected = rolled(cpuContext(), r);
  const Floats got = rolled(gpuContext(), r);
  // Encoder outputs and read states that are dropped leave no part in any output: were one mask
  // another, the means would differ by more than rounding.
  const auto first = static_cast<size_t>(r.shape.members * r.rows * (r.steps + 1) * 64);
  for (size_t i = first; i < expected.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], 1e-4f * std::max(1.0f, std::abs(expected[i]))) << i;
  }
}

TEST(CudaForecast, StepsDependOnNothingThatFollowsAndOnNoOtherRow) {
  PULSORA_REQUIRE_GPU();
  Rolling r{{3, 64, 128, 256, false}, 40, 9};
  const Floats all = rolled(gpuContext(), r);
  const auto state = [](const Rolling &of, int64_t member, int64_t row, int64_t step) {
    return static_cast<size_t>(((member * of.rows + row) * of.steps + step) * of.shape.hidden);
  };
  Rolling fewer = r;
  fewer.rows = 3;  // a smaller cluster's share
  fewer.steps = 4;
  const Floats few = rolled(gpuContext(), fewer);
  Rolling broken = r;
  broken.broken = 1;
  const Floats other = rolled(gpuContext(), broken);
  for (int64_t member = 0; member < 3; ++member) {
    for (int64_t row = 0; row < 3; ++row) {
      for (int64_t step = 0; step < 4; ++step) {
        const size_t at = state(r, member, row, step);
        const size_t bytes = 256 * sizeof(float);
        EXPECT_EQ(0, std::memcmp(&all[at], &few[state(fewer, member, row, step)], bytes));
        if (row != 1) {
          EXPECT_EQ(0, std::memcmp(&all[at], &other[at], bytes));
        } else {
          EXPECT_TRUE(std::isnan(other[at]));
        }
      }
    }
  }
}

Floats decomposed(const Context &context, SvdMethod method) {
  Place place{context, {}};
  const float *a = place.put(normal(50 * 300, 11, 1.0f));
  float *u = place.put(Floats(50 * 6));
  float *s = place.put(Floats(6));
  float *v = place.put(Floats(6 * 300));
  SvdOptions options;
  options.method = method;
  EXPECT_EQ(0, truncatedSvd(context, rowMajor(a, 50, 300), 6, options, rowMajor(u, 50, 6), s,
                            rowMajor(v, 6, 300)));
  Floats result = place.take(s, 6);
  for (const Floats &part : {place.take(u, 50 * 6), place.take(v, 6 * 300)}) {
    result.insert(result.end(), part.begin(), part.end());
  }
  return result;
}

TEST(CudaForecast, DecompositionsAreThoseOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  for (const SvdMethod method : {SvdMethod::Randomised, SvdMethod::Gram, SvdMethod::Exact}) {
    const Floats expected = decomposed(cpuContext(), method);
    EXPECT_EQ(expected, decomposed(reproducibleGpu(), method));
    const Floats close = decomposed(gpuContext(), method);
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(close[i], expected[i], 1e-4f * expected[i]);
  }
}

}  // namespace
}  // namespace pulsora::testing
