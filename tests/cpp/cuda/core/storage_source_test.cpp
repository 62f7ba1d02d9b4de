#include "core/storage_source.h"

#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <vector>

#include "cuda/cuda_test_util.h"
#include "tile/tile_test_util.h"

// Buffers of a GPU in the storage of another library's allocator.

namespace pulsora {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

/// Lends pieces of one buffer, one after another.
class Lender final : public StorageSource {
 public:
  explicit Lender(int64_t bytes) : buffer_(gpuContext(), bytes) {}

  void *allocate(int, void *, size_t bytes) override {
    if (isUnusable) return nullptr;
    const auto whole = static_cast<int64_t>(bytes + 511) / 512 * 512;
    if (isFull || used_ + whole > buffer_.size()) throw OutOfMemoryError("nothing is left");
    void *data = buffer_.data() + used_;
    used_ += whole;
    lent[data] = bytes;
    return data;
  }
  void release(int, void *data) noexcept override { lent.erase(data); }

  std::map<void *, size_t> lent;
  bool isFull = false;
  bool isUnusable = false;

 private:
  Buffer<uint8_t> buffer_;
  int64_t used_ = 0;
};

/// Makes a source the present one during its lifetime.
class Present {
 public:
  explicit Present(StorageSource *source) { setStorageSource(source); }
  ~Present() { setStorageSource(nullptr); }
  Present(const Present &) = delete;
  Present &operator=(const Present &) = delete;
};

Course stepsOf(const Context &context) {
  const TileConfig config = lrttConfig();
  Tile tile(200, 300, config, 5, 2, context);
  Course course;
  for (uint64_t step = 0; step < 3; ++step) {
    const Batch batch = trainingBatch(40, 300, 200, true, step);
    const DeviceBatch on(context, batch);
    DeviceMatrix y(context, 40, 200), dx(context, 40, 300);
    tile.forward(on.x.view(), y.view());
    tile.backward(on.d.view(), dx.view());
    tile.update(on.x.view(), on.d.view(), 0.1f);
    course.results.push_back(y.host(context));
    course.results.push_back(dx.host(context));
  }
  course.state = tile.state();
  return course;
}

void expectSame(const Course &a, const Course &b) {
  for (size_t r = 0; r < a.results.size(); ++r) EXPECT_TRUE(sameBits(a.results[r], b.results[r]));
  EXPECT_TRUE(sameState(a.state, b.state));
}

TEST(CudaStorageSource, LendsTheStorageOfTilesAndGetsItBack) {
  PULSORA_REQUIRE_GPU();
  const Course own = stepsOf(gpuContext());
  Lender lender(int64_t{64} << 20);
  size_t most = 0;
  {
    const Present present(&lender);
    const Tile tile(200, 300, lrttConfig(), 5, 2, gpuContext());
    for (const auto &[data, bytes] : lender.lent) most += bytes;
    EXPECT_GE(most, 200u * 300 * sizeof(float));
    EXPECT_LE(most, static_cast<size_t>(tile.memoryBytes()));
  }
  EXPECT_TRUE(lender.lent.empty());
  {
    const Present present(&lender);
    expectSame(own, stepsOf(gpuContext()));
  }
}

// Storage goes back to its source, also when another source is the present one.
TEST(CudaStorageSource, StorageOutlivesItsSourcesTurn) {
  PULSORA_REQUIRE_GPU();
  Lender lender(int64_t{64} << 20);
  std::optional<Buffer<float>> buffer;
  {
    const Present present(&lender);
    buffer.emplace(Buffer<float>::zeros(gpuContext(), 1 << 20));
    const Buffer<float> small(gpuContext(), 16);
    EXPECT_EQ(lender.lent.size(), 1u) << "small buffers are not lent";
  }
  EXPECT_EQ(lender.lent.size(), 1u);
  buffer.reset();
  EXPECT_TRUE(lender.lent.empty());
}

TEST(CudaStorageSource, SaysThatNothingIsLeftOrThatItCannotBeUsed) {
  PULSORA_REQUIRE_GPU();
  Lender lender(int64_t{1} << 20);
  const Present present(&lender);
  lender.isFull = true;
  EXPECT_THROW(Buffer<float>(gpuContext(), 1 << 20), OutOfMemoryError);
  lender.isUnusable = true;
  EXPECT_NO_THROW(Buffer<float>(gpuContext(), 1 << 20));
  EXPECT_TRUE(lender.lent.empty());
}

}  // namespace
}  // namespace pulsora
