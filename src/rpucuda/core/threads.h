#pragma once

#include <cstdint>

// How the CPU's threads are used, in one place: for how much work, how many, and in which state. No
// result depends on any of it.

namespace pulsora {

/// Work for which one more thread is woken, in elementary steps of about a nanosecond. Waking a
/// thread takes some microseconds where cores are idle, and a time slice where they are busy
/// (benchmarks/NOTES.md).
constexpr int64_t kStepsPerThread = int64_t{1} << 16;

/// Threads for an operation that has `parts` parts and may use `allowed` threads: at least one. In a
/// process made by fork() it is one, because OpenMP's threads do not survive that.
int threadsFor(int allowed, int64_t parts);

/// The most threads that a tile may be given: 64, or as many as there are processors. OpenMP ends the
/// process where it cannot have the threads that it is asked for.
int mostThreads();

/// ConfigError unless 1 <= threads <= mostThreads().
void requireThreads(int threads);

/// How many forks lie between the process that loaded this library and this one.
int forkDepth();

/// While it lives, this thread rounds to nearest and keeps subnormal numbers, whatever the caller
/// chose (torch.set_flush_denormal); then the caller's choice is back.
class StandardFloats {
 public:
  StandardFloats();
  ~StandardFloats();
  StandardFloats(const StandardFloats &) = delete;
  StandardFloats &operator=(const StandardFloats &) = delete;

 private:
  uint32_t previous_;
};

}  // namespace pulsora
