#pragma once

#include "compounds/analog_device.h"

namespace pulsora {

/// A device whose weight takes numbers of pulses: one array, or several that act as one weight.
class CountedDevice : public AnalogDevice {
 public:
  /// Mean change of the weight by one counted pulse up; not above 0 if no change is possible.
  virtual float countedStep() const = 0;
  /// Reserves storage for applyCounts() of up to `visits` lines.
  virtual void reserveCounts(const Context &, int64_t /*visits*/) {}
  /// Pulses the cells of visited lines: values[v, k] steps of the weight, negative ones down. The
  /// device decides which of its arrays take them.
  virtual void applyCounts(const Context &context, const LinePulses &pulses) = 0;
  /// postUpdate() of a device whose prepareUpdate() has been called, with its arrays(): it takes no
  /// memory.
  virtual void endMiniBatch(const Context &context, const std::vector<NamedArray> &arrays,
                            const Counters &c) {
    relax(context, arrays, c.miniBatches);
  }
};

}  // namespace pulsora
