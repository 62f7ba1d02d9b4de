#pragma once

#include "core/context.h"
#include "core/isa.h"
#include "inference/modifiers.h"

namespace pulsora {

/// Modifies all cells, on the device of a context.
void modifyWeights(const Context &context, const WeightModifier &modifier);

/// Modifies the groups [begin, end) on a CPU: compiled once per instruction set, with the bits of
/// WeightModifier.
template <Isa isa>
void modifyGroups(const WeightModifier &modifier, int64_t begin, int64_t end);

}  // namespace pulsora
