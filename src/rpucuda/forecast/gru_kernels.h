#pragma once

#include "core/isa.h"
#include "forecast/gru_functors.h"
#include "forecast/read_functors.h"
#include "forecast/rollout.h"

namespace pulsora {

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

/// encode() on a GPU in one launch. False, having done nothing, where a product is faster.
bool cudaEncode(const Context &context, MatrixView<const float> x, MatrixView<const float> encoder,
                VectorView<const float> bias, MatrixView<float> out);

/// rollout() on a GPU in one launch, close to the CPU's results but with another order of sums: a
/// row's bits depend on the sizes of the ensemble alone. It writes no predicted states. False,
/// having done nothing, for normalised states, and for sizes that do not fit into a block's shared
/// memory.
bool cudaRollout(const Context &context, const EnsembleShape &shape, const EnsembleWeights &weights,
                 MatrixView<const float> features, const float *first, int64_t steps, bool feedback,
                 const RolloutOutputs &out, const RolloutOptions &options);

/// The mask of one member's units from `firstUnit` on, for rows from `firstRow` on.
PULSORA_HD DropoutMask dropoutMask(const RolloutOptions &options, int64_t member, int64_t firstRow,
                                   int64_t firstUnit) {
  return {makeKey(options.seed, static_cast<uint32_t>(member), 0),
          options.dropout,
          1.0f / (1.0f - options.dropout),
          firstRow,
          options.rowsPerSample,
          firstUnit};
}

}  // namespace pulsora
