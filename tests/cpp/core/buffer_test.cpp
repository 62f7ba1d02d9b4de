#include "core/buffer.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <utility>
#include <vector>

#include "core/check.h"

namespace pulsora {
namespace {

TEST(Buffer, MovesItsStorageAndLeavesNothingBehind) {
  Buffer<int> a = Buffer<int>::zeros(Context{}, 5);
  a.data()[4] = 7;
  const int *storage = a.data();
  Buffer<int> b(std::move(a));
  EXPECT_EQ(b.data(), storage);
  EXPECT_EQ(b.size(), 5);
  // What a move leaves is part of the contract.
  EXPECT_EQ(a.data(), nullptr);  // NOLINT(bugprone-use-after-move, clang-analyzer-cplusplus.Move)
  EXPECT_TRUE(a.empty());
  Buffer<int> c(Context{}, 2);
  c = std::move(b);
  EXPECT_EQ(c.data(), storage);
  EXPECT_EQ(c.data()[4], 7);
  EXPECT_EQ(c.data()[0], 0);
}

TEST(Buffer, IsAlignedForVectorsAndKnowsItsBytes) {
  for (const int64_t size : {1, 3, 1000}) {
    const Buffer<float> buffer(Context{}, size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
    EXPECT_EQ(buffer.bytes(), static_cast<size_t>(size) * 4);
  }
  const Buffer<float> none(Context{}, 0);
  EXPECT_EQ(none.data(), nullptr);
}

TEST(Buffer, ReserveGrowsButNeverShrinks) {
  Buffer<float> buffer(Context{}, 10);
  const float *storage = buffer.data();
  buffer.reserve(Context{}, 4);
  EXPECT_EQ(buffer.data(), storage);
  EXPECT_EQ(buffer.size(), 10);
  buffer.reserve(Context{}, 11);
  EXPECT_EQ(buffer.size(), 11);
}

// 2^62 floats are 2^64 bytes, which wrap around to none.
TEST(Buffer, OutOfMemoryLeavesTheObjectAsItWas) {
  Buffer<float> buffer = Buffer<float>::zeros(Context{}, 3);
  buffer.data()[2] = 1.5f;
  const float *storage = buffer.data();
  for (const int64_t size : {int64_t{1} << 60, int64_t{1} << 62, INT64_MAX}) {
    EXPECT_THROW(buffer.reserve(Context{}, size), OutOfMemoryError) << size;
    EXPECT_THROW((Buffer<float>(Context{}, size)), OutOfMemoryError) << size;
    EXPECT_EQ(buffer.data(), storage);
    EXPECT_EQ(buffer.size(), 3);
    EXPECT_EQ(buffer.data()[2], 1.5f);
  }
}

struct AllocatorOfTwo : ScratchAllocator {
  void *allocate(size_t bytes) override {
    asked.push_back(bytes);
    return asked.size() <= 2 ? storage[asked.size() - 1] : throw OutOfMemoryError("all is lent");
  }
  std::vector<size_t> asked;
  alignas(64) char storage[2][256];
};

TEST(Buffer, LentStorageIsUsedAndNotFreed) {
  AllocatorOfTwo allocator;
  Context context;
  context.allocator = &allocator;
  {
    Buffer<float> first(context, 10);
    Buffer<float> second;
    second.reserve(context, 3);
    EXPECT_EQ(static_cast<void *>(first.data()), allocator.storage[0]);
    EXPECT_EQ(static_cast<void *>(second.data()), allocator.storage[1]);
    EXPECT_THROW(second.reserve(context, 5), OutOfMemoryError);
    second = std::move(first);
    EXPECT_EQ(static_cast<void *>(second.data()), allocator.storage[0]);
    Buffer<float> own(Context{}, 4);
    first = std::move(own);
  }  // freeing what is lent would end the process
  EXPECT_EQ(allocator.asked, (std::vector<size_t>{40, 12, 20}));
}

TEST(ScratchAllocator, SharesOnePieceOfMemory) {
  AllocatorOfTwo allocator;
  EXPECT_EQ(allocator.allocateShared(100), allocator.storage[0]);
  EXPECT_EQ(allocator.allocateShared(60), allocator.storage[0]);
  EXPECT_EQ(allocator.allocateShared(101), allocator.storage[1]);
  EXPECT_EQ(allocator.asked, (std::vector<size_t>{100, 101}));
}

}  // namespace
}  // namespace pulsora
