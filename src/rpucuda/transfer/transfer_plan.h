#pragma once

#include <vector>

#include "core/buffer.h"
#include "core/context.h"
#include "core/scratch.h"
#include "transfer/plan_formulas.h"
#include "transfer/transfer_rule.h"

namespace pulsora {

/// A plan in host memory, for explain() and tests.
struct TransferPlan {
  std::vector<ComponentPlan> components;
  float lr = 0.0f;

  int64_t trains() const;
};

/// Memory of a plan, on the context's backend.
struct PlanMemory {
  ScratchBuffer<ComponentPlan> components;
  ScratchBuffer<int64_t> starts;
  ScratchBuffer<int64_t> present;
  Buffer<uint32_t> finished;  // on a GPU, one counter (see cudaPlanTransfer)
};

/// The rule for plans of these transfers, onto an array of that granularity.
PlanRule trainRule(const TransferRule &rule, float granularity);

/// Reserves storage for planInto() with factors that have `lines` rows together: planInto() then
/// cannot run out of memory. Returns the passes of the transfer.
TransferPasses reservePlan(const Context &context, const TransferRule &rule, int64_t lines,
                           PlanMemory &memory);

/// Plans a transfer of `sent`, the `exact` factors or their values as read, into `memory`;
/// `granularity` is the granularity of the array that is written. Unless null, `pulsesBefore` gets
/// the value of `pulseCounter` before the transfer. `missing`: see PlanRule.
TransferPlanner planInto(const Context &context, const TransferRule &rule, float granularity,
                         const TransferFactors &sent, const TransferFactors &exact,
                         const uint64_t *pulseCounter, uint64_t *pulsesBefore, PlanMemory &memory,
                         const MissingPart *missing = nullptr);

/// The plan for factors d [dSize, K] and x [xSize, K]; waits for a GPU.
TransferPlan planTransfer(const Context &context, const TransferRule &rule, float granularity,
                          MatrixView<const float> d, MatrixView<const float> x);

/// On a GPU (cuda/transfer/pulse_transfer.cu): planComponent() for every component, then
/// placeTrains(). `finished` is 0 before and after.
void cudaPlanTransfer(const Context &context, const TransferPlanner &planner, uint32_t *finished);

}  // namespace pulsora
