#pragma once

#include <memory>
#include <mutex>
#include <pybind11/pybind11.h>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/threads.h"
#include "step_record.h"
#include "tile/tile.h"

namespace pulsora::bindings {

namespace py = pybind11;

/// A tile that any number of Python threads may call: calls run one after another, without the
/// interpreter lock.
class SharedTile {
 public:
  explicit SharedTile(Tile tile)
      : tile_(std::move(tile)),
        context_(tile_.context()),
        mutex_(std::make_unique<std::recursive_mutex>()),
        forkDepth_(pulsora::forkDepth()) {}

  int64_t dSize() const { return tile_.dSize(); }
  int64_t xSize() const { return tile_.xSize(); }
  uint64_t seed() const { return tile_.seed(); }
  uint32_t tileId() const { return tile_.tileId(); }
  const Context &context() const { return context_; }

  /// Runs work(tile) without the interpreter lock: `work` must not touch a Python object. A signal
  /// handler that runs while `work` pauses may call the tile too. StateError while a step is
  /// recorded.
  template <class Work>
  auto run(const Work &work) {
    requireUnrecorded();
    return runNow(work);
  }

  /// run() for facts that no recorded step changes: also while a step is recorded.
  template <class Work>
  auto look(const Work &work) {
    return runNow(work);
  }

  /// Calls run(work), or stores `work` in the step being recorded: it must hold copies of all its
  /// data, except the memory of arrays.
  template <class Work>
  void enqueue(const Work &work) {
    if (!record_) return runNow(work);
    record_->add(context_.device, lane_, [this, work] { runNow(work); });
  }

  /// enqueue() for several tiles: runs work() while no other thread may call any of them. `work`
  /// may call the tiles by their pointers from whole().
  template <class Work>
  static void enqueueTogether(const std::vector<SharedTile *> &tiles, const Work &work) {
    const SharedTile &any = *tiles.front();
    for (const SharedTile *tile : tiles) {
      PULSORA_CHECK(
          StateError, tile->record_ == any.record_ && tile->lane_ == any.lane_,
          "some tiles of a layer belong to a training step that is recorded, and others do "
          "not; record all of them in one lane");
    }
    if (any.record_) {
      any.record_->add(any.context_.device, any.lane_,
                       [tiles, work] { runTogetherNow(tiles, work); });
    } else {
      runTogetherNow(tiles, work);
    }
  }
  /// run() for several tiles; StateError while a step is recorded.
  template <class Work>
  static void runTogether(const std::vector<SharedTile *> &tiles, const Work &work) {
    for (SharedTile *tile : tiles) tile->requireUnrecorded();
    runTogetherNow(tiles, work);
  }
  /// The tile itself, for enqueueTogether().
  Tile *whole() { return &tile_; }

  void setContext(const Context &context) {
    runNow([&](Tile &tile) { tile.setContext(context); });
    context_ = context;
  }

  /// Stores enqueued work in a lane of `record` from here on.
  void beginRecord(StepRecord &record, int lane) {
    record_ = &record;
    lane_ = lane;
  }
  /// Ends beginRecord(), if the tile's record is `record`.
  void endRecord(const StepRecord &record) {
    if (record_ == &record) record_ = nullptr;
  }
  bool isRecorded() const { return record_ != nullptr; }

  /// The learning rate of a call that may be recorded.
  StepRate rate(float lr) const { return record_ ? record_->rate(lr) : StepRate(lr); }

  /// Whether a StepGraph captures the tile's work.
  bool inStepGraph = false;

 private:
  template <class Work>
  static void runTogetherNow(const std::vector<SharedTile *> &tiles, const Work &work) {
    for (SharedTile *tile : tiles) tile->requireWholeAfterFork();
    const py::gil_scoped_release released;
    std::vector<std::unique_lock<std::recursive_mutex>> guards;
    guards.reserve(tiles.size());
    for (SharedTile *tile : tiles) guards.emplace_back(*tile->mutex_);
    const StandardFloats standard;
    work();
  }

  template <class Work>
  std::invoke_result_t<const Work &, Tile &> runNow(const Work &work) {
    requireWholeAfterFork();
    const py::gil_scoped_release released;
    const std::lock_guard<std::recursive_mutex> guard(*mutex_);
    const StandardFloats standard;
    return work(tile_);
  }

  void requireUnrecorded() const {
    PULSORA_CHECK(
        StateError, !record_,
        "while a training step is recorded, tiles are read and updated with torch's tensors, "
        "and nothing else; move what asks for weights, states, counters or statistics out "
        "of the step");
  }

  // In a process made by fork(), a mutex that another thread had locked stays locked, because that
  // thread does not exist there. Called under the interpreter lock.
  void requireWholeAfterFork() {
    if (forkDepth_ != pulsora::forkDepth()) {
      forkDepth_ = pulsora::forkDepth();
      if (mutex_->try_lock()) {
        mutex_->unlock();
      } else {
        static_cast<void>(mutex_.release());  // a locked mutex must not be destroyed
        mutex_ = std::make_unique<std::recursive_mutex>();
        isTorn_ = true;
      }
    }
    if (!isTorn_) return;
    throw std::runtime_error(
        "another thread was using this tile when the process was forked, so that its state here is "
        "not known; make it anew with Tile.from_state(), or fork while it is at rest");
  }

  Tile tile_;
  Context context_;  // the tile's; read and written under the interpreter lock
  std::unique_ptr<std::recursive_mutex> mutex_;
  int forkDepth_;  // of the process in which the mutex was last checked
  bool isTorn_ = false;
  StepRecord *record_ = nullptr;
  int lane_ = 0;
};

}  // namespace pulsora::bindings
