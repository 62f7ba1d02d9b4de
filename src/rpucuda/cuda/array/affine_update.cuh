#pragma once

#include "cuda/array/deferred_cells.cuh"

// A cell's moments over a mini-batch (devices/affine_moments.h), for updates with noise_merge =
// "batch" of models whose step is an affine function of the weight. A thread takes one cell; words
// come from the cache.

namespace pulsora {
namespace gpu {

/// Calls take(n, up) for each sample of cell (row, col) with n >= 1 coincidences, in order.
template <class Take>
__device__ __forceinline__ void overCoincidences(const Samples &s, int64_t row, int64_t col,
                                                 const Take &take) {
  const PulseWords &p = s.words;
  if (hasLevels(p.kind) || s.layout.wordsPerSample > 1) {
#pragma unroll 1
    for (int64_t sample = 0; sample < s.count; ++sample) {
      const int n = signedCoincidences(p, s.layout, sample, row, col);
      if (n != 0) take(::abs(n), n > 0);
    }
    return;
  }
  const int64_t words = s.layout.words(s.count);
  const uint32_t mask = slotMask(s.layout.slots);
  if (s.layout.slots == 1) {
#pragma unroll 2
    for (int64_t word = 0; word < words; ++word) {
      const uint32_t both = slotsOfBoth(p, word, row, col);
      const uint32_t up = slotsUp(p, word, row, col);
      for (uint32_t left = both; left != 0; left &= left - 1)
        take(1, (up & left & (0u - left)) != 0);
    }
    return;
  }
#pragma unroll 1
  for (int64_t word = 0; word < words; ++word) {
    uint32_t both = slotsOfBoth(p, word, row, col);
    uint32_t up = slotsUp(p, word, row, col);
    while (both != 0) {
      const int n = __popc(both & mask);
      if (n != 0) take(n, (up & 1u) != 0);
      both = s.layout.slots < 32 ? both >> s.layout.slots : 0u;
      up >>= s.layout.slots & 31;
    }
  }
}

/// The weight of cell `index` after all its pulses at once; adds their number to `pulses`. If
/// `holds` becomes false, the weight is unchanged and the cell must go sample by sample.
template <class Device, bool kMultiplicative>
__device__ __forceinline__ float mergeCellInOrder(const Array<Device> &a, const Samples &samples,
                                                  int64_t index, unsigned long long &pulses,
                                                  bool &holds) {
  const int64_t row = index / a.cols;
  const float w = a.weights[index];
  const typename Device::Response response = a.response(index);
  const AffineMaps maps = Device::affineMaps(response, a.params);
  const float sigma = a.params.dw_min_std;
  AffineMoments moments = AffineMoments::of(w);
  unsigned long long taken = 0;
  overCoincidences(samples, row, index - row * a.cols, [&](int n, bool up) {
    taken += static_cast<unsigned>(n);
    moments.template add<kMultiplicative>(static_cast<float>(n), up, maps, sigma);
  });
  holds = true;
  if (taken == 0) return w;
  pulses += taken;
  const float z = normalOfUpdate(a.rounds, static_cast<uint64_t>(index), samples.words.firstSample);
  const float drawn =
      moments.template drawn<kMultiplicative>(w, maps, response, a.params, z, holds);
  return holds ? drawn : w;
}

}  // namespace gpu
}  // namespace pulsora
