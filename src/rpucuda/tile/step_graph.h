#pragma once

#include <memory>

#include "core/context.h"

namespace pulsora {

/// Runs what one mini-batch enqueues in a stream as one CUDA graph.
///
///     StepGraph graph(tile.context());
///     graph.begin();
///     tile.forward(x, y); tile.backward(d, dx); tile.update(x, d, lr); tile.postUpdate(lr);
///     graph.end();
///
/// Every mini-batch is captured anew, because the host keeps the sample numbers and the schedule of
/// transfers; the captured graph then updates an executable graph of equal shape (steps with and
/// without a transfer have one each), which is launched. The results are those of the plain calls,
/// to the bit. Buffers that x, y, d and dx lie in may change between mini-batches.
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

  /// From here on the stream's work is recorded instead of run.
  void begin();
  /// Launches what was recorded.
  void end();
  /// Drops what was recorded since begin(), for callers that give up; the tiles' counters are not
  /// set back. Does nothing if nothing is being recorded.
  void abandon() noexcept;
  /// Executable graphs that are kept.
  int shapes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pulsora
