#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "tile/training_graph.h"

namespace pulsora::bindings {

/// A learning rate: fixed, or set at each run of a recorded step.
class StepRate {
 public:
  explicit StepRate(float lr) : fixed_(lr) {}
  StepRate(const std::deque<float> &rates, size_t number) : rate_(&rates[number]) {}

  float operator()() const { return rate_ ? *rate_ : fixed_; }

 private:
  float fixed_ = 0.0F;
  const float *rate_ = nullptr;
};

/// The calls to tiles while torch captures a training step, repeated at each run.
class StepRecord {
 public:
  explicit StepRecord(int device) : graph_(device) {}

  TrainingGraph &graph() { return graph_; }
  /// Stores a call of a lane at the present place of torch's current stream.
  void add(int device, int lane, TrainingGraph::Call call);
  /// Selects the learning rate, by number, of later updates; before, each keeps the one it has.
  void useRate(size_t number) {
    if (number >= rates_.size()) rates_.resize(number + 1);
    current_ = number;
  }
  StepRate rate(float lr) const { return current_ ? StepRate(rates_, *current_) : StepRate(lr); }
  void setRates(const std::vector<float> &rates) {
    for (size_t i = 0; i < rates_.size() && i < rates.size(); ++i) rates_[i] = rates[i];
  }

 private:
  TrainingGraph graph_;
  std::deque<float> rates_;  // a deque, because addresses must stay
  std::optional<size_t> current_;
};

/// torch's current stream on a GPU, a cudaStream_t.
void *torchStream(int device);

}  // namespace pulsora::bindings
