#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

namespace pulsora {

/// Merges equal GPU launches of several objects that do the same at the same time, such as the
/// tiles of a layer.
///
///     batched.run(tiles.size(), [&](size_t i) { tiles[i]->forward(in[i], out[i]); });
///
/// While the calls run, launches are kept in one queue per object. Then the heads of all queues are
/// compared: equal launches are merged into one, the others follow in order. Any call that waits
/// for the GPU or frees GPU memory enqueues the kept launches first. So an object's results
/// equal its results alone, to the bit, as long as no object's work depends on another's.
class BatchedLaunches {
 public:
  /// Enqueues work of one kind for `count` jobs; the kind is a plain struct.
  using Send = void (*)(const void *kind, const void *const *jobs, int count);

  /// Calls work(0), ..., work(count - 1), then enqueues their launches. If a call throws, the
  /// launches kept before it are still enqueued; an error of that replaces the first. Runs on the
  /// calling thread, one call at a time.
  void run(size_t count, const std::function<void(size_t)> &work);

  /// Whether launches are being kept on this thread.
  static bool areKept() { return current() != nullptr; }
  /// The number of objects whose launches are being kept on this thread; 1 if none are.
  static size_t together() { return areKept() ? current()->count_ : 1; }
  /// Holds what kept launches use until they have been enqueued; without any, drops it at once.
  static void hold(std::shared_ptr<void> used) noexcept;
  /// Enqueues this thread's kept launches; to be called before waiting for the GPU.
  static void sendKept();
  /// Calls send(kind, jobs, count): now, or later with equal kinds. Kind and job are kept as bytes.
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
  /// Calls work(): now, or in its turn, never merged. It must hold copies of all it needs.
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
  /// One kept launch; without `send`, the function asIs_[job].
  struct Kept {
    Send send;
    size_t kind;  // index in stored_, like `job`
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
  size_t object_ = 0;  // the object whose call is running
  size_t count_ = 1;   // of objects
  std::vector<Unit> stored_;
  std::vector<std::function<void()>> asIs_;
  std::vector<std::shared_ptr<void>> held_;
  std::vector<const void *> jobs_;  // scratch
};

}  // namespace pulsora
