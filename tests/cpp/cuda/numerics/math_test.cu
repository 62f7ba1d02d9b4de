#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <vector>

#include "cuda/core/check.cuh"
#include "cuda/cuda_test_util.h"
#include "numerics/math.h"

// Divisions on a GPU that have no branch, and the functions that they are part of.

namespace pulsora {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

constexpr int kNumerators = 64;

/// Normal numbers of all magnitudes from 2^-30 to 2^30.
__device__ float numerator(int i, uint32_t bits) {
  const uint32_t mixed = (bits ^ (static_cast<uint32_t>(i) << 23)) * 0x9E3779B9U + 0x85EBCA6BU * i;
  return bitCast<float>((mixed & 0x807FFFFFU) | ((97U + static_cast<uint32_t>(i) % 60U) << 23));
}

/// Counts quotients of a divisor of each mantissa that are not those of `/`.
__global__ void compareQuotients(unsigned long long *different) {
  const uint32_t mantissa = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned long long count = 0;
  for (const int exponent : {127, 128, 117, 137}) {
    const auto y = bitCast<float>(static_cast<uint32_t>(exponent) << 23 | mantissa);
    for (int i = 0; i < kNumerators; ++i) {
      const float x = numerator(i, mantissa);
      if (bitCast<uint32_t>(quotientOfNormal(x, y)) != bitCast<uint32_t>(x / y)) ++count;
    }
  }
  if (count != 0) atomicAdd(different, count);
}

TEST(CudaMath, QuotientsOfNormalNumbersAreThoseOfADivision) {
  PULSORA_REQUIRE_GPU();
  unsigned long long *different = nullptr;
  PULSORA_CUDA_CHECK(cudaMallocManaged(&different, sizeof(*different)));
  *different = 0;
  compareQuotients<<<(1U << 23) / 256U, 256>>>(different);
  PULSORA_CUDA_CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(*different, 0U);
  cudaFree(different);
}

/// Functions of every 61st positive float, in order.
constexpr uint32_t kStep = 61;
constexpr int kFunctions = 5;

PULSORA_HD void functionsOf(uint32_t i, float *to) {
  const auto x = bitCast<float>(kStep * i);
  to[0] = pulsora::log(x);
  to[1] = pulsora::log1p(x);
  to[2] = pulsora::pow(x, -0.4F);
  to[3] = pulsora::exp2OfBounded(-0.65F * pulsora::log2OfNormal(pulsora::max(x, 2e-5F)));
  to[4] = pulsora::limit(x, 0.5F, 25.0F);
}

__global__ void makeFunctions(uint32_t count, float *to) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) functionsOf(i, to + kFunctions * static_cast<size_t>(i));
}

TEST(CudaMath, FunctionsWithQuotientsHaveTheBitsOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  constexpr uint32_t kCount = 0x7f7fffffU / kStep;
  const size_t numbers = size_t{kFunctions} * kCount;
  float *made = nullptr;
  PULSORA_CUDA_CHECK(cudaMalloc(&made, numbers * sizeof(float)));
  makeFunctions<<<kCount / 256 + 1, 256>>>(kCount, made);
  std::vector<float> seen(numbers);
  PULSORA_CUDA_CHECK(
      cudaMemcpy(seen.data(), made, numbers * sizeof(float), cudaMemcpyDeviceToHost));
  cudaFree(made);
  for (uint32_t i = 0; i < kCount; ++i) {
    float wanted[kFunctions];
    functionsOf(i, wanted);
    for (int f = 0; f < kFunctions; ++f)
      ASSERT_EQ(bitCast<uint32_t>(seen[kFunctions * static_cast<size_t>(i) + f]),
                bitCast<uint32_t>(wanted[f]))
          << f << " of " << bitCast<float>(kStep * i);
  }
}

}  // namespace
}  // namespace pulsora
