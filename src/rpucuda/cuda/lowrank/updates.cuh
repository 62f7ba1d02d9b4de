#pragma once

#include "lowrank/gated_low_rank.h"

// The fused kernels, by type. Each says whether it has taken the case. T is Half or BFloat16.

namespace RPU::lowrank {

template <class T>
bool forward16(const Context &context, const GatedLowRank &update, ConstAnyMatrix base,
               AnyMatrix y);
bool forward32(const Context &context, const GatedLowRank &update, ConstAnyMatrix base,
               AnyMatrix y);
template <class T>
bool backward16(const Context &context, const GatedLowRank &update, ConstAnyMatrix dy,
                const GatedGradients &gradients);
/// Floats that backward16() needs for a case that it takes; 0 for others.
int64_t scratchOfBackward16(const Context &context, const GatedLowRank &update, ConstAnyMatrix dy,
                            const GatedGradients &gradients);

}  // namespace RPU::lowrank
