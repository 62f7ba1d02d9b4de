#pragma once

#include <cstdint>

#include "array/pulsed_device.h"
#include "core/buffer.h"
#include "core/context.h"
#include "core/view.h"
#include "pulses/bit_line_maker.h"

namespace RPU {

/// Rounds of reading and pulsing of a PulseWriter.
constexpr int kVerifyRounds = 8;

/// Writes arrays by deterministic pulses: kVerifyRounds times, each cell is read exactly and gets
/// round(|target - w| / granularity) pulses towards its target. Within its bounds a cell without
/// cycle-to-cycle noise ends within half a step.
class PulseWriter {
 public:
  /// Storage for write() to this array: it cannot run out of memory then.
  void reserve(const Context &context, const PulsedDevice &array);
  /// Moves `array` to `target`. `event` numbers the writes of this array.
  void write(const Context &context, PulsedDevice &array, MatrixView<const float> target,
             uint64_t event);

 private:
  Buffer<float> selection_, difference_;
  BitLineMaker maker_;
};

}  // namespace RPU
