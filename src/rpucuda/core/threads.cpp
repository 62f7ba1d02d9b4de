#include "core/threads.h"

#include <algorithm>
#include <pthread.h>
#include <thread>

#include "core/check.h"

#ifdef __x86_64__
#include <xmmintrin.h>
#endif

namespace pulsora {
namespace {

// Changed only by the handler below, when a process has one thread.
int forks = 0;

// Registered once, when the library is loaded.
[[maybe_unused]] const int kRegistered = pthread_atfork(nullptr, nullptr, [] { ++forks; });

#ifdef __x86_64__
// Control register bits: flush to zero, rounding (two bits), subnormals are zero.
constexpr uint32_t kUnusual = 0x8000U | 0x6000U | 0x0040U;
#endif

}  // namespace

int threadsFor(int allowed, int64_t parts) {
  if (forks > 0) return 1;
  return static_cast<int>(std::max<int64_t>(1, std::min<int64_t>(allowed, parts)));
}

int mostThreads() {
  constexpr unsigned kAnywhere = 64;
  static const auto kMost = static_cast<int>(
      std::max(kAnywhere, static_cast<unsigned>(std::thread::hardware_concurrency())));
  return kMost;
}

void requireThreads(int threads) {
  PULSORA_CHECK(ConfigError, threads >= 1 && threads <= mostThreads(), "threads is ", threads,
                "; it must be >= 1 and <= ", mostThreads(),
                " on this machine; more threads than processors only wait for one another");
}

int forkDepth() { return forks; }

#ifdef __x86_64__
StandardFloats::StandardFloats() : previous_(_mm_getcsr()) {
  if ((previous_ & kUnusual) != 0) _mm_setcsr(previous_ & ~kUnusual);
}
StandardFloats::~StandardFloats() {
  if ((previous_ & kUnusual) != 0) _mm_setcsr(previous_);
}
#else
StandardFloats::StandardFloats() : previous_(0) {}
StandardFloats::~StandardFloats() = default;
#endif

}  // namespace pulsora
