#pragma once

#include <string>
#include <vector>

#include "array/pulsed_device.h"
#include "parameters/value.h"
#include "periphery/analog_read.h"

namespace pulsora {

/// Counts of what the hardware of a tile did since the tile was made (AnalogDevice::countHardware).
class HardwareCounts {
 public:
  explicit HardwareCounts(const Context &context) : context_(context) {}
  const Context &context() const { return context_; }

  /// Adds an array of cells; `slots` are the time slots of its pulse trains.
  void addArray(const std::string &name, const PulsedDevice &cells, uint64_t slots) {
    addArray(name, cells.rows(), cells.cols(), cells.pulseCount(context_), slots);
  }
  void addArray(const std::string &name, int64_t rows, int64_t columns, uint64_t pulses,
                uint64_t slots);
  /// Counts lines of the array `name` that were written one after another by counted pulses.
  void addLines(const std::string &name, uint64_t lines);
  /// Adds reads of the array `name` for the purpose `use`. `devices` are read in place of one cell.
  /// Reads through the converters of another array have none of their own.
  void addReads(const std::string &name, const std::string &use, const AnalogRead &read,
                uint64_t samples, uint64_t devices = 1, bool converts = true);
  void addReads(const std::string &name, const std::string &use, const ReadCounts &counts);
  /// Counts digital multiplications with an addition, and bytes of digital memory that were moved.
  void addDigital(uint64_t operations, uint64_t bytes) {
    operations_ += operations;
    bytes_ += bytes;
  }
  /// Counts transfers, and arrays that were written digitally.
  void addTransfers(uint64_t transfers) { transfers_ += transfers; }
  void addWrites(uint64_t writes) { writes_ += writes; }

  Value::Map describe() const;

 private:
  Context context_;
  Value::List arrays_, reads_;
  uint64_t operations_ = 0, bytes_ = 0, transfers_ = 0, writes_ = 0;
};

}  // namespace pulsora
