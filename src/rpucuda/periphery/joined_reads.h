#pragma once

#include "periphery/read_stages.h"
#include "pulses/draw_trains.h"

// Reads and updates of an adapter on a GPU in few launches (cuda/periphery/joined_reads.cu).

namespace RPU {

/// Arrays with at most this many lines on their short side are read a row of the mini-batch per
/// block, all threads along the long side.
constexpr int64_t kFewLines = 64;

/// Reads the first array of an adapter, and converts what was read for the second. The next kernel
/// must be cudaMultiplyParts() with `beside`, or one that waits for this.
void cudaReadBeside(const Context &context, const PlainRead &first, const PlainRead &second);

/// The same, and measures and converts the inputs of a large array beside it.
void cudaConvertBeside(const Context &context, const InputStage &large, const PlainRead &first,
                       const PlainRead &second);

/// A gapless matrix and where it is copied to.
struct MatrixCopy {
  const float *from;
  float *to;
  int64_t size;
};

/// What an adapter's update needs before its trains are drawn: g = B in and e = A^T out, and the
/// scales of the trains of A, from (g, out), and of B, from (in, e).
struct AdapterProjection {
  PlainRead g;
  PlainRead e;
  TrainJob a;
  TrainJob b;
  MatrixCopy copies[2];  // snapshots that are to be taken on the way; null: none
};
void cudaProject(const Context &context, const AdapterProjection &projection);

}  // namespace RPU
