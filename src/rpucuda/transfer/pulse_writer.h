#pragma once

#include <cstdint>

#include "array/pulsed_device.h"
#include "core/context.h"
#include "core/view.h"

namespace RPU {

/// Rounds of reading and pulsing that writeByPulses() takes.
constexpr int kVerifyRounds = 8;

/// Moves `array` to `target` by deterministic pulses: kVerifyRounds times, each cell is read
/// exactly and gets round(|target - w| / granularity) pulses towards its target. Within its bounds
/// a cell without cycle-to-cycle noise ends within half a step. `event` numbers the writes of this
/// array.
void writeByPulses(const Context &context, PulsedDevice &array, MatrixView<const float> target,
                   uint64_t event);

}  // namespace RPU
