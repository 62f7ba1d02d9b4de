#pragma once

#include <cstdint>

#include "array/pulsed_device.h"
#include "core/context.h"
#include "core/scratch.h"
#include "core/view.h"
#include "transfer/line_trains.h"

namespace pulsora {

/// Rounds of reading and pulsing of a PulseWriter.
constexpr int kVerifyRounds = 8;

/// Writes arrays by counted pulses, line by line of the shorter side.
class PulseWriter {
 public:
  /// Reserves storage for write() to this array, which then cannot run out of memory.
  void reserve(const Context &context, const PulsedDevice &array);
  /// Moves `array` to `target`: kVerifyRounds times, each cell is read exactly and gets
  /// round(|target - w| / granularity) pulses towards its target. Within its bounds a cell without
  /// cycle-to-cycle noise ends within half a step. `event` numbers the writes of this array.
  void write(const Context &context, PulsedDevice &array, MatrixView<const float> target,
             uint64_t event);
  /// Sends the whole pulses of the `accumulated` changes [rows, cols], at most `most` to a cell,
  /// and subtracts them. `number` counts these calls, below mostSendings(). Their samples are
  /// numbered from 0 up, like samples of updates, which this array must not get too.
  void flush(const Context &context, PulsedDevice &array, MatrixView<float> accumulated, int most,
             uint64_t number);
  static uint64_t mostSendings(const PulsedDevice &array);
  /// Number of events that write() has sample numbers for.
  static uint64_t mostWrites(const PulsedDevice &array) {
    return mostSendings(array) / kVerifyRounds;
  }

 private:
  /// Sends -difference_ / granularity pulses, rounded.
  void send(const Context &context, PulsedDevice &array, uint64_t firstSample);

  ScratchBuffer<float> difference_;
  LineTrains lines_;
  BitLineMaker maker_;              // for arrays that merge noise
  ScratchBuffer<float> selection_;  // likewise
};

}  // namespace pulsora
