#pragma once

#include <cstdint>

#include "parameters/field_types.h"

namespace pulsora {

/// The buffer between the reads of a transfer and its writes.
enum class TransferBuffer {
  None,     ///< nothing: a read is written at once
  Sum,      ///< a digital sum, of which whole steps are written
  Chopped,  ///< a digital sum of reads, whose signs alternate with those of the inputs
  Dynamic,  ///< as Chopped, against a running mean of reads
};
template <>
struct EnumNames<TransferBuffer> {
  static constexpr const char *kNames[] = {"none", "sum", "chopped", "dynamic"};
};

/// The settings of transfers from one array of a chain onto the next, as numbers; `lines` of the
/// first array are read, each with `others` cells. Plain data, so that a GPU can use it.
struct LineRule {
  TransferBuffer buffer = TransferBuffer::None;
  bool columns = true;  // whether lines are columns
  int64_t lines = 1;
  int64_t others = 1;

  // Buffers: H collects reads, in units of `unit` weights (Sum), or as numbers of steps.
  float gain = 1.0f;       // of a read
  float threshold = 1.0f;  // change of H that is one step of the array that is written
  int most = 1;            // steps that a write takes at once
  float momentum = 0.0f;   // part of H that stays after a write
  bool forget = true;      // whether a write clears H but for that part
  bool keeps = true;       // whether H keeps what is not written
  float cap = 0.0f;        // limit of H after a write, where H is kept; 0: none

  // Writes.
  float stepChance = 1.0f;  // probability of each pulse
  float stepSize = 0.0f;    // digital change that stands for a step; 0: pulses

  // Choppers: signs of read lines and of the other side.
  float lineFlips = 0.0f;   // probability of a change of sign after each read of a line
  float otherFlips = 0.0f;  // and of the other side's, after all lines were read
  bool regular = true;      // a line's sign changes after each `period` reads instead
  int64_t period = 2;

  // Dynamic.
  float tail = 1.0f;       // weight of a read in the running mean
  bool corrects = false;   // divide the gain by the number of reads since a change of sign
  float mostReads = 1.0f;  // of that number

  bool chops() const {
    return buffer == TransferBuffer::Chopped || buffer == TransferBuffer::Dynamic;
  }
};

}  // namespace pulsora
