#pragma once

#include <cstddef>
#include <functional>
#include <type_traits>
#include <vector>

namespace pulsora {

/// Launches of several objects on a GPU that do the same at the same time, such as the tiles of a
/// layer: those that are alike become one.
///
///     joined.run(tiles.size(), [&](size_t i) { tiles[i]->forward(in[i], out[i]); });
///
/// While the calls run, what they enqueue is kept, in the order of each. Then the next launches of
/// all objects are compared: equal ones are made as one, and others wait for their turn. Whatever
/// waits for the GPU, or frees its memory, enqueues first what has been kept. So each object's work
/// is what it is alone, to the bit, as long as no object's work depends on another's.
class BatchedLaunches {
 public:
  /// Enqueues work of one kind for `count` jobs; the kind is a plain struct.
  using Send = void (*)(const void *kind, const void *const *jobs, int count);

  /// Calls work(0), ..., work(count - 1), and enqueues what they ask for. If one throws, what was
  /// kept before is still enqueued, unless that fails too: then this is the error. On the thread that calls, one at a time.
  void run(size_t count, const std::function<void(size_t)> &work);

  /// Whether work is being kept on this thread.
  static bool areKept() { return current() != nullptr; }
  /// Enqueues what is kept on this thread; to be called before the GPU is waited for.
  static void sendKept();
  /// send(kind, jobs, count) for this job: now, or later with equal ones. Both are kept as bytes.
  template <class Kind, class Job>
  static void enqueue(Send send, const Kind &kind, const Job &job) {
    static_assert(std::has_unique_object_representations_v<Kind>, "kinds are compared as bytes");
    static_assert(std::is_trivially_copyable_v<Job> && alignof(Job) <= sizeof(Unit));
    if (BatchedLaunches *here = current()) {
      here->keep(
          {send, here->stored(&kind, sizeof kind), here->stored(&job, sizeof job), sizeof kind});
    } else {
      const void *const only = &job;
      send(&kind, &only, 1);
    }
  }
  /// work(): now, or in its turn, as it is. It must hold copies of all it needs.
  template <class Work>
  static void enqueue(const Work &work) {
    if (BatchedLaunches *here = current()) {
      here->keepAsIs(work);
    } else {
      work();
    }
  }

 private:
  struct alignas(std::max_align_t) Unit {
    std::byte bytes[alignof(std::max_align_t)];
  };
  /// What was kept; without `send` it is piece of work number `job`.
  struct Kept {
    Send send;
    size_t kind;  // where it lies in stored_, and `job` as well
    size_t job;
    size_t kindBytes;
  };

  static BatchedLaunches *&current();
  size_t stored(const void *from, size_t bytes);
  void keep(const Kept &kept) { ofObject_[object_].push_back(kept); }
  void keepAsIs(std::function<void()> work);
  bool areAlike(const Kept &a, const Kept &b) const;
  void send();
  size_t sendNext(std::vector<size_t> &sent);
  void clear();

  std::vector<std::vector<Kept>> ofObject_;
  size_t object_ = 0;  // whose call is running
  std::vector<Unit> stored_;
  std::vector<std::function<void()>> asIs_;
  std::vector<const void *> jobs_;  // scratch
};

}  // namespace pulsora
