#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>

#ifdef _OPENMP
// Declared as in omp.h, a header of one compiler that the tools of another do not find.
extern "C" int omp_get_thread_num();  // NOLINT(readability-identifier-naming)
#endif

// Parts shared by the CPU's matrix products: how they are cut, and the memory of their threads.

namespace pulsora {

/// Neighbouring rows or columns.
struct Part {
  int64_t begin;
  int64_t size;
};

inline int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Part `index` of `total`, cut as evenly as possible into `parts` multiples of `unit` (the last
/// one may end early).
inline Part part(int64_t total, int64_t unit, int64_t parts, int64_t index) {
  const int64_t units = ceilDiv(total, unit);
  const int64_t begin = std::min(total, units * index / parts * unit);
  return {begin, std::min(total, units * (index + 1) / parts * unit) - begin};
}

/// Number of the calling thread within a parallel region.
inline int threadNumber() {
#ifdef _OPENMP
  return omp_get_thread_num();
#else
  return 0;
#endif
}

/// Workspaces of the calling thread's products, one for each thread that takes part. They are kept,
/// because fresh pages would cost time at every call, and are not on the stack, because the threads
/// of some programs have little of it. A product never fails for lack of memory: if none can be
/// allocated, one workspace of the process serves one product, on one thread, at a time.
template <class Workspace>
class Workspaces {
 public:
  explicit Workspaces(int threads) : threads_(threads) {
    Owned &mine = ofThread();
    if (mine.count < threads) {
      mine.all.reset(new (std::nothrow) Workspace[static_cast<size_t>(threads)]);
      mine.count = mine.all ? threads : 0;
    }
    all_ = mine.all.get();
    if (all_) return;
    static Workspace spare;
    static std::mutex mutex;
    spare_ = std::unique_lock<std::mutex>(mutex);
    all_ = &spare;
    threads_ = 1;
  }

  int threads() const { return threads_; }
  Workspace &of(int thread) { return all_[thread]; }

 private:
  struct Owned {
    std::unique_ptr<Workspace[]> all;
    int count = 0;
  };
  static Owned &ofThread() {
    thread_local Owned owned;
    return owned;
  }

  int threads_;
  Workspace *all_ = nullptr;
  std::unique_lock<std::mutex> spare_;
};

}  // namespace pulsora
