#pragma once

#include "core/context.h"
#include "core/scratch.h"
#include "periphery/additive_functors.h"
#include "periphery/analog_read.h"

// Additive reads: a large array, and chains of two arrays with few lines between them (low-rank
// factors), driven by one mini-batch.

namespace pulsora {

/// The read of one array, and the weights that it multiplies with, [out, in] of its direction.
struct ArrayRead {
  AnalogRead &read;
  MatrixView<const float> weights;
};

/// Two arrays in series: factor * second(gate .* first(in)) is added to another read.
struct ChainedRead {
  ArrayRead first;
  ArrayRead second;
  MatrixView<float> inner;       ///< [m, K], gets the inputs of the second array
  MatrixView<const float> gate;  ///< [m, K], or without data for none
  MatrixView<float> ungated;     ///< [m, K], gets the values before the gate; may have no data
  float factor;
};

/// adder.to += adder.alpha * adder.from.
void addScaled(const Context &context, const ScaledAdder &adder);

/// Reserves storage for addChain().
void reserveChain(const Context &context, const ChainedRead &chain, MatrixView<float> out,
                  ScratchBuffer<float> &scratch);

/// out += factor * second(gate .* first(in)). `scratch` grows to hold [m, out].
void addChain(const Context &context, const ChainedRead &chain, MatrixView<const float> in,
              MatrixView<float> out, uint64_t firstSample, ScratchBuffer<float> &scratch);

/// out = base(in), plus `count` chains in their order. On a GPU the first chain shares the launches
/// of the base read if both are plain reads and the chain has no gate; the result is the sum of the
/// separate reads, to rounding; on the CPU and with reproducible products, to the bit.
void readTogether(const Context &context, const ArrayRead &base, const ChainedRead *chains,
                  int count, MatrixView<const float> in, MatrixView<float> out,
                  uint64_t firstSample, ScratchBuffer<float> &scratch);

}  // namespace pulsora
