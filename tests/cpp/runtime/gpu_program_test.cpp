#include "runtime/gpu_program.h"

#include <gtest/gtest.h>
#include <string>

#include "core/check.h"
#include "runtime/nvrtc.h"
#include "util/message_test_util.h"

// Tests without a GPU; tests/python/test_cuda_runtime.py launches kernels.

namespace pulsora {
namespace {

constexpr const char *kFill = "extern \"C\" __global__ void fill(int *out) { *out = 1; }\n";

TEST(Nvrtc, ArchitecturesHaveANumber) {
  EXPECT_EQ(architectureNumber("sm_90"), 90);
  EXPECT_EQ(architectureNumber("sm_120"), 120);
  for (const char *wrong : {"", "90", "sm_9", "sm_90a", "compute_90", " sm_90", "sm_1000"})
    EXPECT_THROW(architectureNumber(wrong), ConfigError) << wrong;
}

TEST(Nvrtc, CompilesOrTellsWhatToInstall) {
  std::string version;
  try {
    version = nvrtcVersion();
  } catch (const CompilerNotFound &error) {
    EXPECT_NE(std::string(error.what()).find("libnvrtc.so"), std::string::npos);
    EXPECT_THROW(compileForGpu({kFill}, "sm_90"), CompilerNotFound);
    GTEST_SKIP() << "no NVRTC here";
  }
  EXPECT_GE(version, "12");
  const GpuBinary made = compileForGpu({kFill, "fill.cu", {}, {"fill"}}, "sm_90");
  EXPECT_EQ(made.code.substr(1, 3), "ELF");
  EXPECT_EQ(made.names.at("fill"), "fill");
  EXPECT_THROW(compileForGpu({kFill}, "sm_20"), ConfigError);
  const std::string told =
      messageOf([] { compileForGpu({"\nint f( {", "wrong.cu", {}, {}}, "sm_90"); });
  EXPECT_NE(told.find("wrong.cu(2): error"), std::string::npos) << told;
}

TEST(GpuProgram, TypesOfNumbersHaveASize) {
  EXPECT_EQ(sizeOfGpuType("bool"), 1u);
  EXPECT_EQ(sizeOfGpuType("float16"), 2u);
  EXPECT_EQ(sizeOfGpuType("float32"), 4u);
  EXPECT_EQ(sizeOfGpuType("uint64"), 8u);
  EXPECT_NE(messageOf([] { sizeOfGpuType("float"); }).find("write one of bool, int8"),
            std::string::npos);
}

TEST(GpuProgram, ArgumentsKnowTheirType) {
  EXPECT_EQ(GpuArgument(1.0f).type(), "float32");
  EXPECT_EQ(GpuArgument(int64_t{1}).type(), "int64");
  EXPECT_EQ(*static_cast<const int32_t *>(GpuArgument(int32_t{7}).value()), 7);
  const GpuArgument pointer = GpuArgument::ofBytes("float32*", std::string(8, '\1'), 2);
  EXPECT_EQ(pointer.type(), "float32*");
  EXPECT_EQ(pointer.device(), 2);
  EXPECT_THROW(GpuArgument::ofBytes("int64", std::string(9, '\0')), InputError);
}

TEST(GpuProgram, ArraysThatFitNowhereAreRefusedBeforeADriverIsAsked) {
  EXPECT_THROW(GpuArray::zeros("float32", -1, 0), ConfigError);
  EXPECT_THROW(GpuArray::zeros("float", 1, 0), ConfigError);
  EXPECT_THROW(GpuArray::zeros("float64", int64_t{1} << 62, 0), OutOfMemoryError);
  EXPECT_EQ(GpuArray::zeros("float64", 0, 0).bytes(), 0u);
}

TEST(GpuProgram, WithoutADriverItIsNamed) {
  std::string told;
  try {
    GpuStream stream(0);
    GTEST_SKIP() << "there is a GPU";
  } catch (const DeviceError &error) {
    told = error.what();
  }
  EXPECT_TRUE(told.find("libcuda.so.1") != std::string::npos ||
              told.find("CUDA driver") != std::string::npos)
      << told;
  EXPECT_THROW(GpuProgram("code", 0), DeviceError);
  EXPECT_THROW(gpuArchitecture(0), DeviceError);
}

}  // namespace
}  // namespace pulsora
