#pragma once

#include <string>

#include "core/scratch.h"
#include "periphery/analog_read.h"
#include "storage/state.h"

namespace pulsora {

/// One-hot reads: the lines of an array one after another, through a separate periphery.
class LineRead {
 public:
  /// Reads an array of which `lines` can be driven and `outputs` sensed, in the direction of
  /// `pass`.
  LineRead(const Context &context, const IOParameters &periphery, Pass pass, int64_t lines,
           int64_t outputs, const ReadKeys &keys, const ReadLimits &limits = {})
      : read_(context, periphery, pass, lines, outputs, keys, limits),
        lines_(lines),
        outputs_(outputs) {}

  /// AnalogRead::setWeightBound() and asksForIntegers().
  void setWeightBound(double bound) { read_.setWeightBound(bound); }
  bool asksForIntegers() const { return read_.asksForIntegers(); }

  const AnalogRead &read() const { return read_; }

  /// Reserves storage for run(), which then cannot run out of memory.
  void reserve(const Context &context);
  /// Reads all lines of an array with `weights` [outputs, lines] into [lines, outputs]; line j is
  /// sample firstRead + j. The view is valid until the next run().
  MatrixView<const float> run(const Context &context, MatrixView<const float> weights,
                              uint64_t firstRead);

  void saveTo(const Context &context, State &state, const std::string &prefix) const {
    read_.saveTo(context, state, prefix);
  }
  void loadFrom(const Context &context, const State &state, const std::string &prefix) {
    read_.loadFrom(context, state, prefix);
  }

 private:
  AnalogRead read_;
  int64_t lines_;
  int64_t outputs_;
  ScratchBuffer<float> unit_, values_;
};

}  // namespace pulsora
