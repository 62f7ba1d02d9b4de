#include "compounds/hardware_counts.h"

#include "lrtt/lrtt_transfer_device.h"

// What the hardware of an LRTT tile did.

namespace pulsora {

void LRTTTransferDevice::countHardware(const Counters &c, HardwareCounts &counts) const {
  const PulsedDevice &cells = visible();
  uint64_t slots = cells.slotCount(counts.context());
  if (transfers_) slots += transfers_->total(counts.context()).slots;
  counts.addArray("visible", cells, slots);
  counts.addReads("visible", "forward", visible_.read(Pass::Forward), c.forwardSamples);
  counts.addReads("visible", "backward", visible_.read(Pass::Backward), c.backwardSamples);
  if (!adapter_) return;
  adapter_->countHardware(c, counts);
  transfers_->countHardware(counts);
}

void LRTTAdapter::countHardware(const Counters &c, HardwareCounts &counts) const {
  const LRTTParams &p = settings_.params;
  const Pass forward = p.swap_xd ? Pass::Backward : Pass::Forward;
  const Pass backward = p.swap_xd ? Pass::Forward : Pass::Backward;
  const bool converts = p.inject_io == InjectIo::PerArray;
  const bool pulsed = p.reinit_write == ReinitWrite::Pulsed;
  const auto rank = static_cast<uint64_t>(settings_.rank);
  const auto lines = static_cast<uint64_t>(a_.rows() + b_.cols());
  for (const bool isA : {true, false}) {
    const Crossbar &array = isA ? a_ : b_;
    const AnalogRead &projection = isA ? projectionA_ : projectionB_;
    const std::string name = isA ? "fast_a" : "fast_b";
    counts.addArray(name, array.cells(), array.cells().slotCount(counts.context()));
    if (p.forward_inject) {
      counts.addReads(name, "forward", array.read(forward), c.forwardSamples, 1, converts);
      counts.addReads(name, "backward", array.read(backward), c.backwardSamples, 1, converts);
    }
    if (p.projection != Projection::Exact) {
      const bool all = p.projection == Projection::Analog;
      counts.addReads(name, "projection", projection, all ? c.updateSamples : projected_);
    }
  }
  if (p.projection == Projection::Exact) counts.addDigital(rank * lines * c.updateSamples, 0);
  if (accumulated_.used())
    counts.addDigital(rank * lines * c.updateSamples, 8 * rank * lines * c.miniBatches);
  if (!pulsed) counts.addWrites(writes_);
}

void LRTTTransfer::countHardware(HardwareCounts &counts) const {
  const uint64_t lines = count() * static_cast<uint64_t>(settings_.rank);
  counts.addReads("fast_a", "transfer", readA_.read(), lines);
  counts.addReads("fast_b", "transfer", readB_.read(), lines);
  counts.addTransfers(count());
  // Cells are verified one by one: each has a conversion.
  ReadCounts verified;
  verified.cellReads = verified.adc = total(counts.context()).reads;
  if (verified.cellReads > 0) counts.addReads("visible", "verify", verified);
}

}  // namespace pulsora
