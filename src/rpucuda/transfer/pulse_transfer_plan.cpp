#include <algorithm>
#include <cmath>

#include "transfer/pulse_transfer.h"
#include "pulses/train_functors.h"

namespace RPU {
namespace {

// Floats of drives that are laid out at a time, and words of trains: longer passes are cut.
constexpr int64_t kDriveBudget = int64_t{1} << 22;
constexpr int64_t kWordBudget = int64_t{1} << 25;

// A pass begins at every rank_chunk-th component, counted from rank_offset, if all components need
// as many trains as they may.
TransferPasses passesOf(const LRTTSettings &s, int64_t lines) {
  const int64_t perComponent = s.params.transfer_max_trains;
  const int64_t words = 2 * PulseLayout::of(longestTrain(s.transferUpdate)).wordsPerSample;
  const int64_t room = std::min(kDriveBudget / lines, kWordBudget / (lines * words));
  const int64_t each = std::max<int64_t>(1, std::min(room, s.chunk() * perComponent));
  const int64_t leading = s.params.rank_offset % s.chunk() * perComponent;
  const int64_t most = s.rank * perComponent;
  return {most, std::min(most, leading > 0 ? std::min(leading, each) : each), each};
}

}  // namespace

int64_t TransferPlan::trains() const {
  int64_t total = 0;
  for (const ComponentPlan &component : components) total += component.trains;
  return total;
}

TransferPlanner planInto(const Context &context, const LRTTSettings &s, float granularity,
                         const TransferFactors &sent, const TransferFactors &exact,
                         PlanMemory &memory) {
  const bool sends = s.params.transfer_mode != TransferMode::Exact &&
                     !isDigital(s.transferUpdate.pulse_type);
  const TransferPasses passes = passesOf(s, sent.d.rows + sent.x.rows);
  memory.components.reserve(context, s.rank);
  memory.starts.reserve(context, s.rank + 1);
  memory.present.reserve(context, passes.count());
  const TransferPlanner planner{
      {s.transferUpdate, sends, s.params.transfer_mode == TransferMode::Lossless,
       s.params.transfer_max_trains, granularity, std::abs(static_cast<double>(s.transferLr))},
      sent,
      exact,
      passes,
      memory.components.data(),
      memory.starts.data(),
      memory.present.data()};
  if (context.onCpu()) {
    for (int64_t k = 0; k < s.rank; ++k) planner.planComponent(OneThread{}, k);
    planner.placeTrains();
  } else {
    if (memory.finished.empty()) memory.finished = Buffer<uint32_t>::zeros(context, 1);
    cudaPlanTransfer(context, planner, memory.finished.data());
  }
  return planner;
}

TransferPlan planTransfer(const Context &context, const LRTTSettings &settings, float granularity,
                          MatrixView<const float> dFactor, MatrixView<const float> xFactor) {
  PlanMemory memory;
  const TransferFactors factors{dFactor, xFactor};
  const TransferPlanner planner =
      planInto(context, settings, granularity, factors, factors, memory);
  TransferPlan plan;
  plan.lr = planner.rule.lr();
  plan.components.resize(static_cast<size_t>(dFactor.cols));
  detail::copyToHost(context, plan.components.data(), planner.components,
                     plan.components.size() * sizeof(ComponentPlan));
  return plan;
}

}  // namespace RPU
