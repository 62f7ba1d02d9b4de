#include "inference/pulse_writing.h"

#include "core/backend.h"
#include "inference/functors.h"
#include "inference/inference_device.h"
#include "linalg/math_util.h"

// Weights of an InferenceDevice that are programmed by reading and pulsing cells.

namespace pulsora {

// Programs the devices of a chip by pulses: all are reset to the lower ends of their ranges, then
// pulsed and verified. The cells follow from the chip, their noise from the programming too.
void InferenceDevice::writePulses(const Context &context, uint64_t number, uint64_t chip) {
  if (!writesPulses()) return;
  const ProgrammedPoint start{number, 0.0, 0, chip};
  const int64_t devices = devicesOfCell();
  const int64_t count = cells() * devices;
  pulsed_.reserve(context, count);
  writeCounts_.reserve(context, 1);
  ScratchBuffer<float> targets;
  targets.reserve(context, count);
  conductancesAt(context, start, Conductances::Target, targets.data());
  const NoiseParams &memory = params_.noise_model.common();
  const PulsedParams &cell = params_.device.common();
  const WeightOfConductance map{memory.g_min, memory.g_max, cell.w_min, cell.w_max};
  forEach(context, count, ConductanceTaker{map, targets.data()});

  const ReadKeys keys = keys_.ofRead(0, Role::Writing);
  const RandomKey cellKey = PulsedDevice::cellKey(cell, keyOfChip(keys.spreads, chip), 0);
  const int64_t cols = xSize_ * devices;
  PulsedDevice array(context, params_.device, dSize_, cols, keyAt(keys.noise, start), cellKey);
  forEach(context, count, Filler{cell.w_min, pulsed_.data()});
  array.setWeights(context, rowMajor<const float>(pulsed_.data(), dSize_, cols), 0);
  CellProgrammer programmer;
  programmer.run(context, array, rowMajor<const float>(targets.data(), dSize_, cols),
                 {params_.write_tolerance * (cell.w_max - cell.w_min), params_.write_rounds,
                  params_.write_max_pulses},
                 0);
  forEach(context, count, ConductanceMaker{map, array.weights().data, pulsed_.data()});
  forEach(context, 1, WriteCounter{programmer.counts(), array.pulseCounter(), writeCounts_.data()});
}

void InferenceDevice::addWriteStatistics(const Context &context, Value::Map &values) const {
  if (pulsed_.empty()) return;
  const WriteCounts counts = detail::valueOnHost(context, writeCounts_.data());
  const auto all = static_cast<double>(counts.program.cells);
  values["write_pulses"] = Value(counts.pulses);
  values["write_slots"] = Value(counts.program.slots);
  values["write_reads"] = Value(counts.program.reads);
  values["write_outside"] =
      Value(all > 0.0 ? static_cast<double>(counts.program.outside) / all : 0.0);
}

}  // namespace pulsora
