#pragma once

#include "core/isa.h"
#include "forecast/gru_functors.h"

namespace RPU {

/// The element functions of a rollout over rows [0, rows) on the CPU, compiled once per instruction
/// set (gru_isa.cpp), with equal bits on each.
struct GruKernels {
  void (*encoded)(const Encoded &, int64_t rows);
  void (*gatesBefore)(const GatesBefore &, int64_t rows);
  void (*stepBefore)(const StepBefore &, int64_t rows);
  void (*stepAfter)(const StepAfter &, int64_t rows);
};

template <Isa>
const GruKernels &gruKernels();
template <>
const GruKernels &gruKernels<Isa::V2>();
template <>
const GruKernels &gruKernels<Isa::V3>();
template <>
const GruKernels &gruKernels<Isa::V4>();
template <>
const GruKernels &gruKernels<Isa::V4Popcnt>();

}  // namespace RPU
