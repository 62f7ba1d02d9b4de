#include "storage/checksum.h"

#include <gtest/gtest.h>
#include <vector>

#include "core/buffer.h"
#include "cuda/cuda_test_util.h"

namespace pulsora {
namespace {

TEST(CudaChecksum, IsThatOfTheSameBytesOnTheHost) {
  PULSORA_REQUIRE_GPU();
  const Context gpu = testing::gpuContext();
  for (const size_t count : {size_t{0}, size_t{5}, size_t{8192}, (size_t{3} << 20) + 13}) {
    std::vector<unsigned char> bytes(count);
    for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<unsigned char>(i * i / 7);
    Buffer<unsigned char> copied(gpu, static_cast<int64_t>(count));
    detail::copyFromHost(gpu, copied.data(), bytes.data(), count);
    Crc64 onHost, onGpu;
    for (int part = 0; part < 2; ++part) {  // the second part follows the first
      onHost.add(bytes.data(), count);
      onGpu.add(gpu, copied.data(), count);
      EXPECT_EQ(onGpu.value(), onHost.value()) << count << " bytes, part " << part;
    }
  }
}

}  // namespace
}  // namespace pulsora
