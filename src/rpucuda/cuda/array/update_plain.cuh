#pragma once

#include "cuda/array/pulsed_array.cuh"

// Pulses of any kind and length: a thread walks through the mini-batch with its cell.

namespace RPU {
namespace gpu {

/// Signed coincidences of one cell in sample s; negative steps down.
__device__ inline int countPlainly(const PulseWords &p, const PulseLayout &layout, int64_t s,
                                   int row, int col) {
  if (p.kind > PulseKind::TwoPass) {
    return -static_cast<int>(levelCount(p.xLevels[s * p.xSize + col], p.dLevels[s * p.dSize + row],
                                        levelScale(p.kind, p.trainLength[s])));
  }
  const int64_t first =
      layout.samplesPerWord > 1 ? s / layout.samplesPerWord : s * layout.wordsPerSample;
  const int shift = static_cast<int>(s % layout.samplesPerWord) * layout.slots;
  const uint32_t mask = slotMask(layout.slots);
  int count = 0;
  uint32_t differ = 0;
  for (int64_t word = first; word < first + layout.wordsPerSample; ++word) {
    const uint32_t xSigns = p.xSigns[word * p.xSize + col];
    uint32_t dBits = p.dBits[word * p.dSize + row];
    if (p.kind == PulseKind::TwoPass) {
      dBits = (dBits & ~xSigns) | (p.dBitsNegativeX[word * p.dSize + row] & xSigns);
    }
    count += __popc(((p.xBits[word * p.xSize + col] & dBits) >> shift) & mask);
    differ = ((xSigns ^ p.dSigns[word * p.dSize + row]) >> shift) & 1u;
  }
  return differ ? count : -count;
}

template <class Device>
__device__ unsigned updatePlain(const ThreadCell &c, const Array<Device> &a, const PulseWords &p,
                                const PulseLayout &layout, int64_t samples) {
  const auto cell = static_cast<uint64_t>(c.index);
  const typename Device::Response response = a.response(c.index);
  float w = a.weights[c.index];
  unsigned pulses = 0;
  for (int64_t s = 0; s < samples; ++s) {
    const int n = countPlainly(p, layout, s, c.row, c.col);
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
}  // namespace RPU
