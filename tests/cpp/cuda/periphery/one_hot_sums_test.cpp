#include "periphery/one_hot_sums.h"

#include <gtest/gtest.h>
#include <vector>

#include "cuda/cuda_test_util.h"
#include "periphery/analog_read.h"
#include "util/io_parameters_test_util.h"

// Sums of one-hot readings on a GPU have the bits of the CPU.

namespace pulsora {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

std::vector<double> sumsOn(const Context &context, const IOParameters &parameters,
                           MatrixView<const float> weights, const std::vector<float> *variances,
                           uint64_t first) {
  AnalogRead read(context, parameters, Pass::Forward, weights.cols, weights.rows,
                  {makeKey(1, 2, 3), makeKey(1, 2, 4)});
  const DeviceMatrix seen(context, weights);
  std::vector<DeviceMatrix> given;
  if (variances) {
    const auto size = static_cast<int64_t>(variances->size());
    given.emplace_back(context, rowMajor<const float>(variances->data(), 1, size));
    read.setCellVariance(given.front().values.data());
  }
  auto sums = Buffer<double>::zeros(context, weights.rows);
  sumOneHot(context, read.oneHot(seen.view(), first), sums.data());
  std::vector<double> host(static_cast<size_t>(weights.rows));
  detail::copyToHost(context, host.data(), sums.data(), sums.bytes());
  return host;
}

TEST(CudaOneHotSums, Property36_HaveTheBitsOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  constexpr int64_t kOutputs = 37;
  for (const int64_t inputs : {1, 31, 256, 300, 1111}) {
    std::vector<float> weights, variances;
    for (int64_t i = 0; i < kOutputs * inputs; ++i) {
      weights.push_back(static_cast<float>(i * 37 % 201 - 100) / 100.0f);
      variances.push_back(static_cast<float>(i % 7) * 1e-3f);
    }
    const auto seen = rowMajor<const float>(weights.data(), kOutputs, inputs);
    for (const IOParameters &parameters : oneHotParameters()) {
      for (const bool windowed : {false, true}) {
        if (windowed && parameters.w_noise > 0.0f) continue;  // refused: noise would count twice
        for (const uint64_t first : {uint64_t{0}, uint64_t{64}, uint64_t{13}}) {
          const auto *given = windowed ? &variances : nullptr;
          EXPECT_EQ(sumsOn(gpuContext(), parameters, seen, given, first),
                    sumsOn(cpuContext(), parameters, seen, given, first))
              << inputs << " " << first;
        }
      }
    }
  }
}

}  // namespace
}  // namespace pulsora
