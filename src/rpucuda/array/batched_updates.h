#pragma once

#include "array/pulsed_kernels.h"
#include "core/context.h"

namespace pulsora {

/// Most arrays of a call of updateBatched().
constexpr int kMostOfObject = 4;

/// On a GPU, kernels.updateTogether(updates, count): now, or later with those of other objects, if
/// launches are being joined (core/batched_launches.h).
void updateBatched(const Context &context, const PulsedKernels &kernels,
                   const PulsedUpdate *updates, int count);

}  // namespace pulsora
