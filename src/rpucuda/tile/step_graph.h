#pragma once

#include <memory>

#include "core/context.h"

namespace pulsora {

/// Runs the work that one mini-batch enqueues in a stream as one CUDA graph.
///
///     StepGraph graph(tile.context());
///     graph.begin();
///     tile.forward(x, y); tile.backward(d, dx); tile.update(x, d, lr);
///     graph.end();
///
/// Each mini-batch is captured again, because the host keeps the sample numbers and the schedule of
/// transfers; the captured graph then updates an executable graph of equal shape (steps with and
/// without a transfer have one each), which is launched. The results have the bits of the plain
/// calls. The buffers of x, y, d and dx may change between mini-batches.
///
/// Between begin() and end() nothing may wait for the GPU: weights, state, statistics and explain
/// fail. Memory is allocated and freed outside the graph.
class StepGraph {
 public:
  /// For tiles in the context's stream, which must not be the default stream, because that cannot
  /// be captured: ConfigError. DeviceError without a GPU.
  explicit StepGraph(const Context &context);
  ~StepGraph();
  StepGraph(const StepGraph &) = delete;
  StepGraph &operator=(const StepGraph &) = delete;

  /// Begins to record the stream's work instead of running it.
  void begin();
  /// Launches the recorded work.
  void end();
  /// Discards the work recorded since begin(), without setting back the tiles' counters. Does
  /// nothing outside a recording.
  void abandon() noexcept;
  /// Number of executable graphs in the cache.
  int shapes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pulsora
