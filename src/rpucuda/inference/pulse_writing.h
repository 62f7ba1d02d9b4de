#pragma once

#include "array/cell_programmer.h"
#include "core/platform.h"
#include "numerics/math.h"

namespace pulsora {

/// How weights become programmed conductances: with the error of the noise model, or by pulses.
enum class WriteKind { Model, Pulses };
template <>
struct EnumNames<WriteKind> {
  static constexpr const char *kNames[] = {"model", "pulses"};
};

/// The linear map between the conductances of a memory and the weights of a device model: g_min and
/// g_max lie at the model's mean bounds.
struct WeightOfConductance {
  float gMin;
  float gMax;
  float wMin;
  float wMax;

  PULSORA_HD float weight(float g) const {
    return pulsora::fma((g - gMin) / (gMax - gMin), wMax - wMin, wMin);
  }
  /// Not negative, whatever a cell's own bounds are.
  PULSORA_HD float conductance(float w) const {
    return pulsora::max(pulsora::fma((w - wMin) / (wMax - wMin), gMax - gMin, gMin), 0.0f);
  }
};

/// values[i], a conductance, becomes the weight for it.
struct ConductanceTaker {
  WeightOfConductance map;
  float *values;

  PULSORA_HD void operator()(int64_t i) const { values[i] = map.weight(values[i]); }
};

/// to[i] = the conductance of the weight from[i].
struct ConductanceMaker {
  WeightOfConductance map;
  const float *from;
  float *to;

  PULSORA_HD void operator()(int64_t i) const { to[i] = map.conductance(from[i]); }
};

/// Reads, pulses and slots of writing an array.
struct WriteCounts {
  ProgramCounts program;
  uint64_t pulses;
};

/// Takes the counts of a program and the pulses of its array; one element.
struct WriteCounter {
  const ProgramCounts *program;
  const uint64_t *pulses;
  WriteCounts *to;

  PULSORA_HD void operator()(int64_t) const { *to = {*program, *pulses}; }
};

}  // namespace pulsora
