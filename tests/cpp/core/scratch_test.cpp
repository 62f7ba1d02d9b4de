#include "core/scratch.h"

#include <cstring>
#include <gtest/gtest.h>
#include <new>
#include <set>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "core/batched_launches.h"

namespace pulsora {
namespace {

/// Sets the limit during its lifetime.
struct LimitOf {
  explicit LimitOf(int64_t bytes) { setScratchLimit(bytes); }
  ~LimitOf() { setScratchLimit(before); }
  int64_t before = scratchLimit();
};

/// Host memory, up to a number of bytes at a time.
struct SmallSource final : ScratchSource {
  explicit SmallSource(size_t most_) : most(most_) {}
  void *allocate(const Context &, size_t bytes) override {
    PULSORA_CHECK(OutOfMemoryError, bytes <= most, "no more");
    asked.push_back(bytes);
    return ::operator new(bytes, std::align_val_t{64});
  }
  void release(Backend, int, void *, void *data) noexcept override {
    ++released;
    ::operator delete(data, std::align_val_t{64});
  }
  size_t most;
  size_t released = 0;
  std::vector<size_t> asked;
};

int64_t inUse() { return scratchMemory(Backend::Cpu).inUse; }

TEST(Scratch, OutsideAnOperationABufferKeepsItsStorage) {
  const int64_t before = inUse();
  ScratchBuffer<float> buffer;
  EXPECT_TRUE(buffer.empty());
  buffer.reserve({}, 10);
  float *storage = buffer.data();
  buffer.reserve({}, 4);
  EXPECT_EQ(buffer.data(), storage);
  EXPECT_GE(buffer.size(), 10);
  EXPECT_EQ(inUse(), before);
}

TEST(Scratch, AnOperationLendsAndTakesBack) {
  const int64_t before = inUse();
  ScratchBuffer<float> a;
  ScratchBuffer<int16_t> b;
  Context context;
  {
    const ScratchOperation operation(context);
    a.reserve(context, 100);
    b.reserve(context, 7);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 64, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(b.data()) % 64, 0u);
    std::memset(a.data(), 1, a.bytes());
    std::memset(b.data(), 2, b.bytes());
    EXPECT_EQ(reinterpret_cast<std::byte *>(a.data())[399], std::byte{1});
    EXPECT_EQ(inUse(), before + 512 + 256);
    EXPECT_GE(scratchMemory(Backend::Cpu).held, inUse());
    float *storage = a.data();
    a.reserve(context, 50);
    EXPECT_EQ(a.data(), storage);
    a.reserve(context, 1000);
    EXPECT_NE(a.data(), storage);
  }
  EXPECT_EQ(context.scratch, nullptr);
  EXPECT_TRUE(a.empty());
  EXPECT_EQ(b.data(), nullptr);
  EXPECT_EQ(inUse(), before);
  EXPECT_GE(scratchMemory(Backend::Cpu).peak, before + 768);
}

// However many objects there are, their operations share the memory of the largest.
TEST(Scratch, ObjectsShareMemory) {
  std::vector<ScratchBuffer<float>> buffers(50);
  std::set<float *> places;
  Context context;
  int64_t held = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const ScratchOperation operation(context);
    buffers[i].reserve(context, 100000);
    places.insert(buffers[i].data());
    if (i == 1) held = scratchMemory(Backend::Cpu).held;
  }
  EXPECT_LE(places.size(), 2u);
  EXPECT_EQ(scratchMemory(Backend::Cpu).held, held);
}

TEST(Scratch, AnOperationWithinAnotherIsAPartOfIt) {
  ScratchBuffer<float> a;
  Context context;
  const ScratchOperation outer(context);
  {
    const ScratchOperation inner(context);
    a.reserve(context, 10);
  }
  EXPECT_GE(a.size(), 10);
  Context other;  // an operation of its own, which ends while the first one goes on
  float *storage = a.data();
  {
    const ScratchOperation apart(other);
    ScratchBuffer<float> b;
    b.reserve(other, 10);
    EXPECT_NE(b.data(), storage);
  }
  EXPECT_EQ(a.data(), storage);
}

TEST(Scratch, StorageFromBeforeComesBackAfterAnOperation) {
  ScratchBuffer<float> a;
  a.reserve({}, 10);
  float *own = a.data();
  Context context;
  {
    const ScratchOperation operation(context);
    a.reserve(context, 5);
    EXPECT_EQ(a.data(), own);
    a.reserve(context, 20);
    EXPECT_NE(a.data(), own);
  }
  EXPECT_EQ(a.data(), own);
  EXPECT_EQ(a.size(), 10);
}

TEST(Scratch, BuffersMoveAndEndWhileTheyAreLent) {
  Context context;
  ScratchBuffer<float> left;
  {
    const ScratchOperation operation(context);
    ScratchBuffer<float> first;
    first.reserve(context, 10);
    float *storage = first.data();
    ScratchBuffer<float> second(std::move(first));
    EXPECT_EQ(second.data(), storage);
    left = std::move(second);
    EXPECT_EQ(left.data(), storage);
    std::vector<ScratchBuffer<float>> many(3);
    many[1].reserve(context, 10);
    many.resize(100);
    EXPECT_GE(many[1].size(), 10);
  }
  EXPECT_TRUE(left.empty());
}

TEST(Scratch, TakeBackLetsABlockBeginAgain) {
  Context context;
  ScratchOperation operation(context);
  ScratchBuffer<float> a, b;
  a.reserve(context, 1000);
  float *storage = a.data();
  operation.takeBack();
  EXPECT_TRUE(a.empty());
  b.reserve(context, 900);
  EXPECT_EQ(b.data(), storage);
}

TEST(Scratch, TheLimitRefusesAndChangesNothing) {
  const LimitOf limit(4096);
  Context context;
  ScratchOperation operation(context);
  ScratchBuffer<float> a, b;
  operation.setLimited(true);
  a.reserve(context, 512);
  float *storage = a.data();
  EXPECT_THROW(b.reserve(context, 1024), ScratchLimitReached);
  EXPECT_THROW(a.reserve(context, 1024), OutOfMemoryError);
  EXPECT_EQ(a.data(), storage);
  EXPECT_TRUE(b.empty());
  operation.setLimited(false);
  b.reserve(context, 1024);
  EXPECT_GE(b.size(), 1024);
  for (const int64_t bytes : {0, -1}) EXPECT_THROW(setScratchLimit(bytes), ConfigError);
  EXPECT_EQ(scratchLimit(), 4096);
}

// Beyond the limit, an arena keeps nothing.
TEST(Scratch, MemoryBeyondTheLimitGoesBack) {
  const LimitOf limit(1 << 20);
  SmallSource source(size_t{1} << 30);
  ScratchSource &before = ScratchSource::exchange(source);
  std::thread([] {  // which has no arena yet
    Context context;
    ScratchBuffer<float> a;
    for (const int64_t size : {1 << 10, 1 << 20, 1 << 10}) {
      const ScratchOperation operation(context);
      a.reserve(context, size);
    }
  })
      .join();
  ScratchSource::exchange(before);
  EXPECT_EQ(source.asked, (std::vector<size_t>{4096, 4 << 20, 4096}));
  EXPECT_EQ(source.released, 3u);
}

// What an operation had to add in pieces, the next one has in one.
TEST(Scratch, SlabsBecomeOne) {
  SmallSource source(size_t{1} << 30);
  ScratchSource &before = ScratchSource::exchange(source);
  std::thread([] {
    Context context;
    ScratchBuffer<float> a, b;
    for (int i = 0; i < 3; ++i) {
      const ScratchOperation operation(context);
      a.reserve(context, 1024);
      b.reserve(context, 2048);
    }
  }).join();
  ScratchSource::exchange(before);
  EXPECT_EQ(source.asked, (std::vector<size_t>{4096, 8192, 12288}));
  EXPECT_EQ(source.released, 3u);
}

TEST(Scratch, ASourceThatHasNoMoreLeavesBuffersAsTheyWere) {
  SmallSource source(5000);
  std::thread([&source] {
    Context context;
    const ScratchOperation operation(context);
    ScratchBuffer<float> a, b;
    ScratchSource &before = ScratchSource::exchange(source);
    a.reserve(context, 1000);
    float *storage = a.data();
    EXPECT_THROW(b.reserve(context, 10000), OutOfMemoryError);
    EXPECT_THROW(b.reserve(context, INT64_MAX), OutOfMemoryError);
    ScratchSource::exchange(before);
    EXPECT_EQ(a.data(), storage);
    EXPECT_TRUE(b.empty());
  }).join();
  EXPECT_EQ(source.released, 1u);
}

TEST(Scratch, ThreadsHaveArenasOfTheirOwn) {
  const int64_t before = inUse();
  const int64_t held = scratchMemory(Backend::Cpu).held;
  std::vector<std::thread> threads;
  std::vector<int> wrong(8);
  for (int number = 0; number < 8; ++number) {
    threads.emplace_back([number, &wrong] {
      Context context;
      ScratchBuffer<int> a;
      for (int round = 0; round < 200; ++round) {
        const ScratchOperation operation(context);
        const int64_t size = 1000 + 37 * round;
        a.reserve(context, size);
        for (int64_t i = 0; i < size; ++i) a.data()[i] = number + round;
        for (int64_t i = 0; i < size; ++i)
          wrong[static_cast<size_t>(number)] += a.data()[i] != number + round;
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(8));
  EXPECT_EQ(inUse(), before);
  EXPECT_EQ(scratchMemory(Backend::Cpu).held, held);  // that of threads goes with them
}

TEST(Scratch, AForkedProcessGoesOn) {
  Context context;
  ScratchBuffer<float> a;
  {
    const ScratchOperation operation(context);
    a.reserve(context, 1000);
  }
  const ScratchOperation operation(context);
  a.reserve(context, 500);
  a.data()[499] = 3.0f;
  const pid_t child = fork();
  if (child == 0) {
    ScratchBuffer<float> b;
    Context own;
    const ScratchOperation within(own);
    b.reserve(own, 2000);
    b.data()[1999] = 1.0f;
    _exit(a.data()[499] == 3.0f && b.data() != a.data() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Launches that are kept use the memory after the operation's end.
TEST(Scratch, KeptLaunchesHoldTheirMemory) {
  const int64_t before = inUse();
  BatchedLaunches joined;
  ScratchBuffer<float> a, b;
  float *places[2] = {};
  joined.run(2, [&](size_t i) {
    Context context;
    EXPECT_EQ(BatchedLaunches::together(), 2u);
    const ScratchOperation operation(context);
    ScratchBuffer<float> &own = i == 0 ? a : b;
    own.reserve(context, 100);
    places[i] = own.data();
  });
  EXPECT_NE(places[0], places[1]);
  EXPECT_EQ(inUse(), before);
  EXPECT_EQ(BatchedLaunches::together(), 1u);
  EXPECT_TRUE(a.empty());
}

}  // namespace
}  // namespace pulsora
