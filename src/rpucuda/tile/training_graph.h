#pragma once

#include <functional>
#include <memory>

#include "core/context.h"

namespace pulsora {

/// A training step as one CUDA graph, enqueued in part by tiles and in part by another library
/// (torch). Every run draws new random numbers.
///
///     TrainingGraph step(device);
///     // while a stream of the library is being captured, instead of tile.forward(x, y):
///     step.add(stream, lane, [&] { tile.forward(x, y); });
///     step.finish(graph);  // the graph that the capture gave
///     step.run(stream);    // as often as wanted
///
/// The work of the library is captured once and repeated. The work of tiles cannot be repeated,
/// because the host keeps the numbers of their samples and the schedule of transfers. So the calls
/// to tiles are stored, and an empty node of the captured graph marks the place of each call. Every
/// run makes and captures these calls, and inserts the captured work at their places in an
/// executable graph of equal shape (steps with and without a transfer have one each). Between two
/// operations of the library, tiles of different lanes run concurrently. The results have the bits
/// of the plain calls.
class TrainingGraph {
 public:
  using Call = std::function<void()>;

  /// DeviceError unless the GPU can be used.
  explicit TrainingGraph(int device);
  ~TrainingGraph();
  TrainingGraph(const TrainingGraph &) = delete;
  TrainingGraph &operator=(const TrainingGraph &) = delete;

  /// Work of different lanes may overlap.
  static constexpr int kLanes = 4;
  /// The stream that tiles of a lane must use when run() calls them; it exists as long as the
  /// process. Work of tiles in other streams must be ordered before run()'s stream.
  void *stream(int lane) const;
  /// Stores a call at the present place of `capturing`, a stream that is being captured: StateError
  /// otherwise, and after finish(). Calls must not wait for the GPU.
  void add(void *capturing, int lane, Call call);
  /// Ends the record. `graph`, a cudaGraph_t, is the result of the capture. Its work moves into
  /// this object, so that a launch of `graph` does nothing.
  void finish(void *graph);
  /// Makes the calls and launches everything in `stream`. If a call throws, nothing runs, although
  /// the tiles have counted the samples of the calls before it.
  void run(void *stream);
  /// Number of executable graphs in the cache.
  int shapes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pulsora
