#pragma once

#include <functional>
#include <memory>

#include "core/context.h"

namespace pulsora {

/// A training step of which tiles enqueue one part and another library (torch) the rest, as one
/// CUDA graph whose every run draws new random numbers.
///
///     TrainingGraph step(device);
///     // while a stream of the library is being captured, instead of tile.forward(x, y):
///     step.add(stream, lane, [&] { tile.forward(x, y); });
///     step.finish(graph);  // the graph that the capture gave
///     step.run(stream);    // as often as wanted
///
/// What the library enqueues is captured once and repeated as it is. What tiles enqueue cannot be
/// repeated, because the host keeps the numbers of their samples and the schedule of transfers. So
/// the calls to tiles are kept, and an empty node of the captured graph keeps the place of each. At
/// every run they are called, captured, and what they enqueue takes these places in an executable
/// graph of equal shape (steps with and without a transfer have one each). Between two things that
/// the library enqueues, tiles of different lanes work side by side. The results are those of the
/// plain calls, to the bit.
class TrainingGraph {
 public:
  using Call = std::function<void()>;

  /// DeviceError unless the GPU can be used.
  explicit TrainingGraph(int device);
  ~TrainingGraph();
  TrainingGraph(const TrainingGraph &) = delete;
  TrainingGraph &operator=(const TrainingGraph &) = delete;

  /// Work of different lanes may overlap.
  static constexpr int kLanes = 16;
  /// The stream of a lane, in which its tiles must work when run() calls them; it exists as long as
  /// the process. What tiles have enqueued elsewhere must be ordered before run()'s stream.
  void *stream(int lane) const;
  /// Keeps a call in the place that `capturing` has come to, a stream that is being captured:
  /// StateError otherwise, and after finish(). Calls must not wait for the GPU.
  void add(void *capturing, int lane, Call call);
  /// Ends the record. `graph`, a cudaGraph_t, is what the capture gave; it must outlive this object.
  void finish(void *graph);
  /// Makes the calls and launches everything in `stream`. If a call throws, nothing runs, although
  /// the tiles have counted the samples of the calls before it.
  void run(void *stream);
  /// Executable graphs that are kept.
  int shapes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pulsora
