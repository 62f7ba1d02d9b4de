#include <cstring>
#include <gtest/gtest.h>
#include <vector>

#include "core/initialise.h"
#include "core/random.h"
#include "cuda/cuda_test_util.h"
#include "forecast/residual_memory.h"
#include "forecast/rollout.h"
#include "forecast/truncated_svd.h"

// The kernels of forecasts on a GPU: to the CPU's bits with reproducible products, and close to them
// with those of cuBLAS.

namespace RPU::testing {
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

Floats rolled(const Context &context, bool after, int64_t steps) {
  constexpr int64_t kMembers = 3;
  constexpr int64_t kRows = 9;
  const EnsembleShape shape{kMembers, 7, 24, 40, after};
  Place place{context, {}};
  const Floats logVarianceBias = normal(kMembers, 8, 1.0f);
  const EnsembleWeights weights{place.put(normal(kMembers * 7 * 24, 1, 0.4f)),
                                place.put(normal(kMembers * 24, 2, 0.1f)),
                                place.put(normal(kMembers * 24 * 120, 3, 0.3f)),
                                place.put(normal(kMembers * 40 * 120, 4, 0.2f)),
                                place.put(normal(kMembers * 120, 5, 0.1f)),
                                after ? place.put(normal(kMembers * 40, 6, 0.2f)) : nullptr,
                                place.put(normal(kMembers * 40 * 2, 7, 0.3f)),
                                logVarianceBias.data()};
  const float *features = place.put(normal(kRows * 7, 9, 1.0f));
  const float *first = place.put(normal(kMembers * kRows * 40, 10, 0.5f));
  const size_t states = kMembers * kRows * 40;
  float *all = place.put(Floats(states * static_cast<size_t>(steps)));
  float *mean = place.put(Floats(static_cast<size_t>(kMembers * kRows * steps)));
  rollout(context, shape, weights, rowMajor(features, kRows, int64_t{7}), first, steps, true,
          {all, nullptr, mean, nullptr});
  Floats result = place.take(all, states * static_cast<size_t>(steps));
  const Floats means = place.take(mean, static_cast<size_t>(kMembers * kRows * steps));
  result.insert(result.end(), means.begin(), means.end());
  return result;
}

TEST(CudaForecast, RolloutsAreThoseOfTheCpu) {
  RPU_REQUIRE_GPU();
  for (const bool after : {false, true}) {
    const Floats expected = rolled(cpuContext(), after, 6);
    const Floats same = rolled(reproducibleGpu(), after, 6);
    EXPECT_EQ(0, std::memcmp(same.data(), expected.data(), expected.size() * sizeof(float)));
    const Floats one = rolled(cpuContext(), after, 1);
    const Floats close = rolled(gpuContext(), after, 1);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(close[i], one[i], 1e-5);
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
  RPU_REQUIRE_GPU();
  for (const SvdMethod method : {SvdMethod::Randomised, SvdMethod::Gram, SvdMethod::Exact}) {
    const Floats expected = decomposed(cpuContext(), method);
    EXPECT_EQ(expected, decomposed(reproducibleGpu(), method));
    const Floats close = decomposed(gpuContext(), method);
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(close[i], expected[i], 1e-4f * expected[i]);
  }
}

TEST(CudaForecast, CorrectionsAreThoseOfTheCpu) {
  RPU_REQUIRE_GPU();
  const Context gpu = gpuContext();
  Place place{gpu, {}};
  const Floats a = normal(1000, 12, 1.0f);
  const Floats b = normal(1000, 13, 1.0f);
  float *out = place.put(Floats(1000));
  correct(gpu, rowMajor<const float>(place.put(a), 20, 50),
          rowMajor<const float>(place.put(b), 20, 50), rowMajor(out, 20, 50));
  const Floats got = place.take(out, 1000);
  for (size_t i = 0; i < 1000; ++i) EXPECT_EQ(got[i], a[i] + b[i]);
}

}  // namespace
}  // namespace RPU::testing
