#include "compounds/hardware_counts.h"

namespace pulsora {

void HardwareCounts::addArray(const std::string &name, int64_t rows, int64_t columns,
                              uint64_t pulses, uint64_t slots) {
  arrays_.emplace_back(Value::Map{{"name", Value(name)},
                                  {"rows", Value(rows)},
                                  {"columns", Value(columns)},
                                  {"pulses", Value(pulses)},
                                  {"slots", Value(slots)},
                                  {"lines", Value(0)}});
}

void HardwareCounts::addLines(const std::string &name, uint64_t lines) {
  for (Value &each : arrays_) {
    if (*each.map()->at("name").text() == name) each.map()->at("lines") = Value(lines);
  }
}

void HardwareCounts::addReads(const std::string &name, const std::string &use,
                              const AnalogRead &read, uint64_t samples, uint64_t devices,
                              bool converts) {
  ReadCounts counts = read.counts(context_, samples);
  counts.cellReads *= devices;
  if (!converts) counts.dac = counts.adc = 0;
  addReads(name, use, counts);
}

void HardwareCounts::addReads(const std::string &name, const std::string &use,
                              const ReadCounts &c) {
  reads_.emplace_back(Value::Map{{"array", Value(name)},
                                 {"use", Value(use)},
                                 {"samples", Value(c.samples)},
                                 {"repeats", Value(c.repeats)},
                                 {"array_reads", Value(c.arrayReads)},
                                 {"cell_reads", Value(c.cellReads)},
                                 {"dac", Value(c.dac)},
                                 {"adc", Value(c.adc)},
                                 {"blocks", Value(c.arrays)}});
}

Value::Map HardwareCounts::describe() const {
  return {{"arrays", Value(arrays_)},
          {"reads", Value(reads_)},
          {"transfers", Value(transfers_)},
          {"digital_writes", Value(writes_)},
          {"digital_operations", Value(operations_)},
          {"digital_bytes", Value(bytes_)}};
}

}  // namespace pulsora
