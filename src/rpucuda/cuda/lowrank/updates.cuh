#pragma once

#include "lowrank/gated_low_rank.h"

// The fused kernels, by type. A function that returns true has taken the case. T is Half or
// BFloat16.

namespace pulsora::lowrank {

template <class T>
bool forward16(const Context &context, const GatedLowRank &update, ConstAnyMatrix base,
               AnyMatrix y);
bool forward32(const Context &context, const GatedLowRank &update, ConstAnyMatrix base,
               AnyMatrix y);
/// The layer with its update, in 16 bits (T) on GPUs of compute capability 9.0: whether a kernel
/// takes the case, whether it is expected to be faster than two passes, and the call.
bool canFuse16(const Context &context, const GatedLowRank &update, ConstAnyMatrix weight,
               ConstAnyMatrix bias, ConstAnyMatrix y);
bool fusing16Pays(const GatedLowRank &update);
template <class T>
void fused16(const Context &context, const GatedLowRank &update, ConstAnyMatrix weight,
             ConstAnyMatrix bias, AnyMatrix y);
/// The layer with its update in single precision, as a kernel and one product of cuBLAS.
bool canStack32(const Context &context, const GatedLowRank &update, ConstAnyMatrix weight,
                ConstAnyMatrix y);
bool stacking32Pays(const GatedLowRank &update);
void stacked32(const Context &context, const GatedLowRank &update, ConstAnyMatrix weight,
               ConstAnyMatrix bias, AnyMatrix y);
template <class T>
bool backward16(const Context &context, const GatedLowRank &update, ConstAnyMatrix dy,
                const GatedGradients &gradients);
/// backward16() by products of cuBLAS, for any sizes.
template <class T>
bool products16(const Context &context, const GatedLowRank &update, ConstAnyMatrix dy,
                const GatedGradients &gradients);
/// Floats that backward16() needs for a case that it takes; 0 for other cases.
int64_t scratchOfBackward16(const Context &context, const GatedLowRank &update, ConstAnyMatrix dy,
                            const GatedGradients &gradients);

}  // namespace pulsora::lowrank
