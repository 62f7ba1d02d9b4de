#include <cstddef>
#include <cuda.h>
#include <gtest/gtest.h>

#include "runtime/cuda_driver.h"

// The declarations in runtime/cuda_driver.h agree with the driver's own header.

namespace pulsora {
namespace {

static_assert(sizeof(CuLaunch) == sizeof(CUlaunchConfig));
static_assert(offsetof(CuLaunch, block) == offsetof(CUlaunchConfig, blockDimX));
static_assert(offsetof(CuLaunch, sharedBytes) == offsetof(CUlaunchConfig, sharedMemBytes));
static_assert(offsetof(CuLaunch, stream) == offsetof(CUlaunchConfig, hStream));
static_assert(offsetof(CuLaunch, attributes) == offsetof(CUlaunchConfig, attrs));
static_assert(offsetof(CuLaunch, attributeCount) == offsetof(CUlaunchConfig, numAttrs));
static_assert(sizeof(CuAttribute) == sizeof(CUlaunchAttribute));
static_assert(offsetof(CuAttribute, value) == offsetof(CUlaunchAttribute, value));
static_assert(sizeof(CuPointer) == sizeof(CUdeviceptr));

TEST(CudaDriver, NumbersAreThoseOfItsHeader) {
  EXPECT_EQ(int{CuAttribute::kProgrammaticSerialization},
            int{CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION});
  EXPECT_EQ(int{CudaDriver::kOutOfMemory}, int{CUDA_ERROR_OUT_OF_MEMORY});
  EXPECT_EQ(int{CudaDriver::kNotFound}, int{CUDA_ERROR_NOT_FOUND});
  EXPECT_EQ(int{CudaDriver::kComputeMajor}, int{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR});
  EXPECT_EQ(int{CudaDriver::kComputeMinor}, int{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR});
}

}  // namespace
}  // namespace pulsora
