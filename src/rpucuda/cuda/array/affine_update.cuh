#pragma once

#include "cuda/array/deferred_cells.cuh"

// A cell's moments over a mini-batch (devices/affine_moments.h), for updates with noise_merge =
// "batch" of models whose step is an affine function of the weight. Words come from the cache.

namespace pulsora {
namespace gpu {

/// The words of a cell's lines: slots with coincidences, and slots that would step up.
struct CellWords {
  uint32_t both;
  uint32_t up;
};

/// Calls take(words) for each word of the mini-batch, in order, for pulses that are no levels.
/// Two words are requested before one is used.
template <class Take>
__device__ __forceinline__ void overWords(const Samples &s, int64_t row, int64_t col,
                                          const Take &take) {
  constexpr int kAhead = 2;
  const PulseWords &p = s.words;
  const int64_t words = s.layout.words(s.count);
  if (p.kind != PulseKind::Words || p.way != PulseWay::Both) {
#pragma unroll 1
    for (int64_t word = 0; word < words; ++word)
      take(CellWords{slotsOfBoth(p, word, row, col), slotsUp(p, word, row, col)});
    return;
  }
  const uint32_t *xBits = p.xBits + col;
  const uint32_t *xSigns = p.xSigns + col;
  const uint32_t *dBits = p.dBits + row;
  const uint32_t *dSigns = p.dSigns + row;
#pragma unroll 1
  for (auto left = static_cast<int>(words); left > 0; left -= kAhead) {
    CellWords ahead[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      if (u >= left) break;
      ahead[u] = {*xBits & *dBits, *xSigns ^ *dSigns};
      xBits += p.xSize;
      xSigns += p.xSize;
      dBits += p.dSize;
      dSigns += p.dSize;
    }
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      if (u < left) take(ahead[u]);
    }
  }
}

/// Takes the moments of cell (row, col) through the mini-batch; returns the number of its pulses.
template <bool kMultiplicative>
__device__ __forceinline__ unsigned addSamples(const Samples &s, int64_t row, int64_t col,
                                               const AffineMaps &maps, float sigma,
                                               AffineMoments &moments) {
  const auto add = [&](int n, bool up) {
    moments.template add<kMultiplicative>(static_cast<float>(n), up, maps, sigma);
  };
  unsigned pulses = 0;
  if (hasLevels(s.words.kind) || s.layout.wordsPerSample > 1) {
#pragma unroll 1
    for (int64_t sample = 0; sample < s.count; ++sample) {
      const int n = signedCoincidences(s.words, s.layout, sample, row, col);
      pulses += static_cast<unsigned>(::abs(n));
      if (n != 0) add(::abs(n), n > 0);
    }
  } else if (s.layout.slots == 1) {
    const OnePulseMap up = OnePulseMap::of<kMultiplicative>(maps.up, sigma);
    const OnePulseMap down = OnePulseMap::of<kMultiplicative>(maps.down, sigma);
    unsigned ups = 0;
    overWords(s, row, col, [&](const CellWords &words) {
      pulses += static_cast<unsigned>(__popc(words.both));
      ups += static_cast<unsigned>(__popc(words.both & words.up));
#pragma unroll 1
      for (uint32_t left = words.both; left != 0; left &= left - 1) {
        const bool isUp = (words.up & left & (0u - left)) != 0;
        moments.template addOne<kMultiplicative>(isUp, up, down);
      }
    });
    moments.countOnes(static_cast<float>(pulses), static_cast<float>(ups));
  } else {
    const uint32_t mask = slotMask(s.layout.slots);
    overWords(s, row, col, [&](CellWords words) {
      pulses += static_cast<unsigned>(__popc(words.both));
#pragma unroll 1
      while (words.both != 0) {
        const int n = __popc(words.both & mask);
        if (n != 0) add(n, (words.up & 1u) != 0);
        words.both = s.layout.slots < 32 ? words.both >> s.layout.slots : 0u;
        words.up >>= s.layout.slots & 31;
      }
    });
  }
  return pulses;
}

/// The weight of a cell after all its pulses at once, with normal z; adds their number to `pulses`.
/// If `holds` becomes false, the weight is unchanged and the cell must go sample by sample.
template <class Device>
__device__ __forceinline__ float mergeCellInOrder(const Array<Device> &a, const Samples &samples,
                                                  const ThreadCell &c, float z,
                                                  unsigned long long &pulses, bool &holds) {
  const float w = a.weights[c.index];
  const typename Device::Response response = a.response(c.index);
  const AffineMaps maps = Device::affineMaps(response, a.params);
  return withKindOfNoise(a.params, [&](auto multiplicative) {
    constexpr bool kMultiplicative = decltype(multiplicative)::value;
    AffineMoments moments = AffineMoments::of(w);
    const unsigned taken =
        addSamples<kMultiplicative>(samples, c.row, c.col, maps, a.params.dw_min_std, moments);
    holds = true;
    if (taken == 0) return w;
    pulses += taken;
    const float drawn =
        moments.template drawn<kMultiplicative>(w, maps, response, a.params, z, holds);
    return holds ? drawn : w;
  });
}

}  // namespace gpu
}  // namespace pulsora
