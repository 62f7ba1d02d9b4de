#pragma once

#include "array/pulsed_kernels.h"
#include "core/context.h"

namespace RPU {

/// Most arrays of a call of updateJoined().
constexpr int kMostOfObject = 4;

/// On a GPU, kernels.updateTogether(updates, count): now, or later with those of other objects, if
/// launches are being joined (core/joined_launches.h).
void updateJoined(const Context &context, const PulsedKernels &kernels, const PulsedUpdate *updates,
                  int count);

}  // namespace RPU
