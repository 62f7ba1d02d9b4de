#pragma once

#include <cstdint>

// The library's use of CPU threads: how many, for how much work, and with which floating-point
// state. No result depends on any of these.

namespace pulsora {

/// Work that is worth one more thread, in elementary steps of about a nanosecond. Waking a thread
/// takes some microseconds where cores are idle, and a time slice where they are busy
/// (benchmarks/NOTES.md).
constexpr int64_t kStepsPerThread = int64_t{1} << 16;

/// Threads for an operation that has `parts` parts and may use `allowed` threads: at least one. In
/// a process made by fork() it is one, because OpenMP's threads do not survive a fork.
int threadsFor(int allowed, int64_t parts);

/// The most threads that a tile may be given: 64, or the number of processors if larger. OpenMP
/// ends the process if it cannot create the threads it is asked for.
int mostThreads();

/// Throws ConfigError unless 1 <= threads <= mostThreads().
void requireThreads(int threads);

/// Number of forks between the process that loaded this library and this one.
int forkDepth();

/// Makes this thread round to nearest and keep subnormal numbers during its lifetime, then restores
/// the caller's choice (torch.set_flush_denormal).
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
