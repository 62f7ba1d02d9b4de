#include "inference/modify_weights.h"

#include "core/backend.h"
#include "core/isa_dispatch.h"

namespace pulsora {

void modifyWeights(const Context &context, const WeightModifier &modifier) {
  const int64_t groups = (modifier.cells + 7) / 8;
  if (!context.onCpu()) {
    forEach(context, groups, modifier);
    return;
  }
  constexpr int64_t kStepsOfGroup = 16;
  const auto kernel = withIsa(context.cpu.isa, [](auto isa) { return &modifyGroups<isa>; });
  parallelRange(context, groups, kStepsPerThread / kStepsOfGroup,
                [&](int64_t begin, int64_t end) { kernel(modifier, begin, end); });
}

}  // namespace pulsora
