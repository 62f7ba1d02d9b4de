#include "compounds/analog_device.h"

#include "core/check.h"

namespace pulsora {

Crossbar &AnalogDevice::array(const std::string &name) {
  std::vector<std::string> names;
  for (const NamedArray &each : arrays()) {
    if (each.name == name) return *each.array;
    names.push_back(each.name);
  }
  PULSORA_CHECK(ConfigError, !names.empty(), "array is '", name,
                "', but this tile has no pulsed array: its weights are floating-point numbers");
  throw ConfigError(
      message("array is '", name, "', which this tile does not have", suggest(name, names)));
}

const Crossbar &AnalogDevice::array(const std::string &name) const {
  return const_cast<AnalogDevice *>(this)->array(name);
}

std::vector<AnalogRead *> AnalogDevice::reads() {
  std::vector<AnalogRead *> reads;
  for (const NamedArray &each : arrays()) {
    for (const Pass pass : {Pass::Forward, Pass::Backward})
      reads.push_back(&each.array->read(pass));
  }
  return reads;
}

void AnalogDevice::prepareUpdate(const Context &context, int64_t, int64_t longest, float lr) {
  reserveUpdate(context, longest, lr);
}

bool AnalogDevice::updateMayBeCut(const Context &) const {
  for (const NamedArray &each : arraysOf()) {
    if (each.array->cells().params().common().noise_merge == NoiseMerge::Batch) return false;
  }
  return true;
}

void AnalogDevice::follow(const Context &context, MatrixView<const float>, const Counters &) {
  prepareFollow(context);
}

void AnalogDevice::prepareFollow(const Context &) {
  throw ConfigError(
      "this kind of tile takes updates (x, d), and has no digital weight to follow; use "
      "MixedPrecisionConfig");
}

Value::Map AnalogDevice::calibrate(const Context &, int64_t, const Counters &) {
  throw ConfigError(
      "this kind of tile has no array of references to calibrate; use ReferenceConfig, or "
      "MixedPrecisionConfig with cells='reference'");
}

void AnalogDevice::postUpdate(const Context &context, float, const Counters &c) {
  relax(context, arrays(), c.miniBatches);
}

void AnalogDevice::reserveCells(const Context &context) const {
  for (const NamedArray &each : arraysOf()) each.array->cells().reserveCells(context);
}

void AnalogDevice::computeCells(const Context &context) {
  for (const NamedArray &each : arrays()) each.array->cells().computeCells(context);
}

void AnalogDevice::relax(const Context &context, const std::vector<NamedArray> &arrays,
                         uint64_t event) {
  for (const NamedArray &each : arrays) each.array->cells().reserveRelax(context);
  for (const NamedArray &each : arrays) each.array->cells().relax(context, event);
}

void AnalogDevice::writeArray(const Context &context, const std::string &name,
                              MatrixView<const float> weights, const Counters &c) {
  array(name).cells().setWeights(context, weights, c.events);
}

void AnalogDevice::resetColumns(const Context &context, const std::string &name, int64_t firstCol,
                                int64_t count, float probability, const Counters &c) {
  array(name).cells().resetColumns(context, firstCol, count, probability, c.events);
}

bool AnalogDevice::retains() const {
  for (const NamedArray &each : arraysOf())
    if (each.array->cells().retains()) return true;
  return false;
}

void AnalogDevice::requireAge(double time, AgeFrom from) const {
  for (const NamedArray &each : arraysOf()) {
    const PulsedDevice &cells = each.array->cells();
    cells.requireAge(time);
    if (from == AgeFrom::Now) cells.requireAge(cells.age().time + time);
  }
}

std::vector<Age> AnalogDevice::ages() const {
  std::vector<Age> ages;
  for (const NamedArray &each : arraysOf()) ages.push_back(each.array->cells().age());
  return ages;
}

void AnalogDevice::requireAges(const std::vector<Age> &ages) const {
  const auto all = arraysOf();
  PULSORA_CHECK(ConfigError, ages.size() == all.size(), "ages has ", ages.size(),
                " entries, but the tile has ", all.size(), " arrays; give one for each");
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].array->cells().requireAge(ages[i].time);
    PULSORA_CHECK(ConfigError, ages[i].redraw <= kMostRedraws, "redraw is ", ages[i].redraw,
                  "; readings are numbered from 0 to ", kMostRedraws);
  }
}

void AnalogDevice::setAges(const Context &context, const std::vector<Age> &ages) {
  const std::vector<NamedArray> all = arrays();
  for (size_t i = 0; i < all.size(); ++i)
    if (ages[i].time > 0.0) all[i].array->cells().reserveAge(context);
  for (size_t i = 0; i < all.size(); ++i) all[i].array->cells().drift(context, ages[i]);
}

Value::Map AnalogDevice::explain(const Context &, MatrixView<const float> x,
                                 MatrixView<const float>, float) const {
  return {{"samples", Value(x.rows)}, {"warnings", Value(Value::List{})}};
}

size_t AnalogDevice::memoryBytes() const {
  size_t bytes = 0;
  for (const NamedArray &each : arraysOf()) bytes += each.array->cells().memoryBytes();
  return bytes;
}

Value::Map AnalogDevice::statistics(const Context &context) const {
  uint64_t pulses = 0;
  int64_t saturated = 0;
  for (const NamedArray &each : arraysOf()) {
    const PulsedDevice &cells = each.array->cells();
    pulses += cells.pulseCount(context);
    saturated += cells.saturatedCells(context);
  }
  return {{"pulses", Value(pulses)},
          {"saturated_cells", Value(saturated)},
          {"memory_bytes", Value(static_cast<uint64_t>(memoryBytes()))}};
}

void AnalogDevice::countHardware(const Counters &c, HardwareCounts &counts) const {
  for (const NamedArray &each : arraysOf()) {
    const Crossbar &array = *each.array;
    counts.addArray(each.name, array.cells(), array.cells().slotCount(counts.context()));
    counts.addReads(each.name, "forward", array.read(Pass::Forward), c.forwardSamples);
    counts.addReads(each.name, "backward", array.read(Pass::Backward), c.backwardSamples);
  }
}

void AnalogDevice::saveTo(const Context &context, State &state, const std::string &prefix) const {
  for (const NamedArray &each : arraysOf())
    each.array->saveTo(context, state, prefix + each.name + "/");
}

void AnalogDevice::boundReads(const Context &context) {
  for (const NamedArray &each : arrays()) each.array->boundReads(context);
}

void AnalogDevice::loadFrom(const Context &context, const State &state, const std::string &prefix) {
  for (const NamedArray &each : arrays())
    each.array->loadFrom(context, state, prefix + each.name + "/");
}

}  // namespace pulsora
