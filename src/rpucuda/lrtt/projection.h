#pragma once

#include "core/context.h"
#include "periphery/read_stages.h"
#include "pulses/draw_pulse_trains.h"

namespace pulsora {

/// A copy of a gapless matrix.
struct MatrixCopy {
  const float *from;
  float *to;
  int64_t size;
};

/// The work before an adapter's update draws its pulse trains: the reads g = B in and e = A^T out,
/// and the scales of the pulse trains of A, from (g, out), and of B, from (in, e).
struct AdapterProjection {
  PlainRead g;
  PlainRead e;
  PulseTrainJob a;
  PulseTrainJob b;
  MatrixCopy copies[2];  // snapshots to take in the same launch; null: none
};

/// Computes all of `projection` on a GPU in one launch (cuda/lrtt/projection.cu).
void cudaProject(const Context &context, const AdapterProjection &projection);

}  // namespace pulsora
