#include "core/threads.h"

#include <gtest/gtest.h>
#include <vector>

#include "core/backend.h"

#ifdef __x86_64__
#include <xmmintrin.h>
#endif

namespace pulsora {
namespace {

TEST(Threads, AnOperationTakesNoMoreThanItHasPartsFor) {
  EXPECT_EQ(threadsFor(8, 0), 1);
  EXPECT_EQ(threadsFor(8, 3), 3);
  EXPECT_EQ(threadsFor(2, 3), 2);
  EXPECT_EQ(threadsFor(1, 1000), 1);
}

TEST(Threads, ThereIsALimit) {
  EXPECT_GE(mostThreads(), 64);
  EXPECT_NO_THROW(requireThreads(mostThreads()));
  EXPECT_THROW(requireThreads(mostThreads() + 1), ConfigError);
  EXPECT_THROW(requireThreads(0), ConfigError);
}

#ifdef __x86_64__
constexpr unsigned kFlushes = 0x8040U;

struct Halver {
  const float *from;
  float *to;

  void operator()(int64_t i) const { to[i] = 0.5f * from[i]; }
};

TEST(StandardFloats, SubnormalsStayWhateverTheCallerChose) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | kFlushes);
  constexpr int64_t kSize = 4 * kStepsPerThread;
  std::vector<float> from(kSize, 0x1p-126f);
  std::vector<float> to(kSize);
  Context context;
  context.cpu.threads = 2;
  forEach(context, kSize, Halver{from.data(), to.data()});
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(after & kFlushes, kFlushes) << "the caller's choice is back";
  for (const float value : to) ASSERT_EQ(value, 0x1p-127f);
}
#endif

}  // namespace
}  // namespace pulsora
