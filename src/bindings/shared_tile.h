#pragma once

#include <memory>
#include <mutex>
#include <pybind11/pybind11.h>
#include <stdexcept>
#include <utility>

#include "core/threads.h"
#include "tile/tile.h"

namespace RPU::bindings {

namespace py = pybind11;

/// A tile that any number of Python threads may call: calls run one after another, without the
/// interpreter lock.
class SharedTile {
 public:
  explicit SharedTile(Tile tile)
      : tile_(std::move(tile)),
        context_(tile_.context()),
        mutex_(std::make_unique<std::recursive_mutex>()),
        forkDepth_(RPU::forkDepth()) {}

  int64_t dSize() const { return tile_.dSize(); }
  int64_t xSize() const { return tile_.xSize(); }
  uint64_t seed() const { return tile_.seed(); }
  uint32_t tileId() const { return tile_.tileId(); }
  const Context &context() const { return context_; }

  /// work(tile), without the interpreter lock: it may not touch a Python object. A signal's handler
  /// that runs while `work` pauses may call the tile too.
  template <class Work>
  auto run(const Work &work) {
    requireWholeAfterFork();
    const py::gil_scoped_release released;
    const std::lock_guard<std::recursive_mutex> guard(*mutex_);
    const StandardFloats standard;
    return work(tile_);
  }

  void setContext(const Context &context) {
    run([&](Tile &tile) { tile.setContext(context); });
    context_ = context;
  }

 private:
  // In a process made by fork(), a mutex that another thread had locked stays locked, because that
  // thread is not there to unlock it. Called under the interpreter lock.
  void requireWholeAfterFork() {
    if (forkDepth_ != RPU::forkDepth()) {
      forkDepth_ = RPU::forkDepth();
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
  int forkDepth_;  // of the process in which the mutex was last found sound
  bool isTorn_ = false;
};

}  // namespace RPU::bindings
