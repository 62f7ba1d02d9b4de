#pragma once

#include "cuda/array/pulsed_array.cuh"
#include "pulses/coincidences.h"

// Pulses of any kind, way and length: a thread walks through the mini-batch with its cell.

namespace pulsora {
namespace gpu {

template <class Device>
__device__ unsigned updatePlain(const ThreadCell &c, const Array<Device> &a, const PulseWords &p,
                                const PulseLayout &layout, int64_t samples) {
  const auto cell = static_cast<uint64_t>(c.index);
  const typename Device::Response response = a.response(c.index);
  float w = a.weights[c.index];
  unsigned pulses = 0;
  for (int64_t s = 0; s < samples; ++s) {
    const int n = signedCoincidences(p, layout, s, c.row, c.col);
    if (n == 0) continue;
    const uint64_t sample = p.firstSample + static_cast<uint64_t>(s);
    pulses += static_cast<unsigned>(abs(n));
    const float z = normalOfSample(a.key, Purpose::CycleNoise, cell, sample);
    w = applyPulses<Device>(w, abs(n), n > 0, response, a.params, z, a.key, cell, sample);
  }
  a.weights[c.index] = w;
  return pulses;
}

}  // namespace gpu
}  // namespace pulsora
