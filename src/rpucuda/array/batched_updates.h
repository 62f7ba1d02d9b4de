#pragma once

#include "array/pulsed_kernels.h"
#include "core/context.h"

namespace pulsora {

/// Most arrays of a call of updateBatched().
constexpr int kMostOfObject = 4;

/// On a GPU, calls kernels.updateTogether(updates, count): now, or later merged with updates of
/// other objects, if launches are being batched (core/batched_launches.h).
void updateBatched(const Context &context, const PulsedKernels &kernels,
                   const PulsedUpdate *updates, int count);

}  // namespace pulsora
