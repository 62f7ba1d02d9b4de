#include "transfer/transfer_plan.h"

#include <algorithm>
#include <cmath>

#include "pulses/pulse_train_functors.h"

namespace pulsora {
namespace {

// Limit of one pass, for floats of drives and for words of pulse trains; longer passes are cut.
constexpr int64_t kDriveBudget = int64_t{1} << 22;
constexpr int64_t kWordBudget = int64_t{1} << 25;

// A pass begins at every rule.chunk-th component, counted from rule.offset, if all components need
// the maximum number of pulse trains.
TransferPasses passesOf(const TransferRule &rule, int64_t lines) {
  const int64_t perComponent = rule.maxTrains;
  const int64_t words = 2 * PulseLayout::of(longestTrain(rule.update)).wordsPerSample;
  const int64_t room = std::min(kDriveBudget / lines, kWordBudget / (lines * words));
  const int64_t each = std::max<int64_t>(1, std::min(room, rule.chunk * perComponent));
  const int64_t leading = rule.offset % rule.chunk * perComponent;
  const int64_t most = rule.components * perComponent;
  return {most, std::min(most, leading > 0 ? std::min(leading, each) : each), each};
}

}  // namespace

int64_t TransferPlan::trains() const {
  int64_t total = 0;
  for (const ComponentPlan &component : components) total += component.trains;
  return total;
}

PlanRule trainRule(const TransferRule &rule, float granularity) {
  return {rule.update,    rule.sendsPulses(), rule.mode != TransferMode::Single,
          rule.maxTrains, granularity,        std::abs(static_cast<double>(rule.lr)),
          nullptr};
}

TransferPasses reservePlan(const Context &context, const TransferRule &rule, int64_t lines,
                           PlanMemory &memory) {
  const TransferPasses passes = passesOf(rule, lines);
  memory.components.reserve(context, rule.components);
  memory.starts.reserve(context, rule.components + 1);
  memory.present.reserve(context, passes.count());
  if (!context.onCpu() && memory.finished.empty())
    memory.finished = Buffer<uint32_t>::zeros(context, 1);
  return passes;
}

TransferPlanner planInto(const Context &context, const TransferRule &rule, float granularity,
                         const TransferFactors &sent, const TransferFactors &exact,
                         const uint64_t *pulseCounter, uint64_t *pulsesBefore, PlanMemory &memory,
                         const MissingPart *missing) {
  const TransferPasses passes = reservePlan(context, rule, sent.d.rows + sent.x.rows, memory);
  PlanRule sending = trainRule(rule, granularity);
  sending.missing = missing;
  const TransferPlanner planner{sending,
                                sent,
                                exact,
                                passes,
                                memory.components.data(),
                                memory.starts.data(),
                                memory.present.data(),
                                pulseCounter,
                                pulsesBefore};
  if (context.onCpu()) {
    for (int64_t k = 0; k < rule.components; ++k) planner.planComponent(OneThread{}, k);
    planner.placeTrains();
  } else {
    cudaPlanTransfer(context, planner, memory.finished.data());
  }
  return planner;
}

TransferPlan planTransfer(const Context &context, const TransferRule &rule, float granularity,
                          MatrixView<const float> d, MatrixView<const float> x) {
  PlanMemory memory;
  const TransferFactors factors{d, x};
  const TransferPlanner planner =
      planInto(context, rule, granularity, factors, factors, nullptr, nullptr, memory);
  TransferPlan plan;
  plan.lr = planner.rule.lr();
  plan.components.resize(static_cast<size_t>(d.cols));
  detail::copyToHost(context, plan.components.data(), planner.components,
                     plan.components.size() * sizeof(ComponentPlan));
  return plan;
}

}  // namespace pulsora
