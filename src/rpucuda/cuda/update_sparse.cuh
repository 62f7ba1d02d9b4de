#pragma once

#include "cuda/pulsed_array.cuh"

// Trains of one slot: few cells have a pulse in a sample. A warp lists the coincidences of up to
// four rows of 32 cells in 64 samples, makes their normals with every lane busy, and then each lane
// applies its own in order. The loop in which each lane draws when it needs to is far slower: its
// lanes wait for one another.

namespace RPU {
namespace gpu {

constexpr int kRowsAtOnce = 4;
constexpr int kEventsPerWarp = 512;

/// The coincidences of a warp's cells, with their normals.
struct WarpEvents {
  float z[kEventsPerWarp];
  uint16_t code[kEventsPerWarp];  // row << 12 | lane << 7 | up << 6 | sample
};

/// The coincidences of one cell in 64 samples, and where the signs of its lines differ.
struct Hits {
  uint32_t both[2];
  uint32_t differ[2];

  __device__ int count() const { return __popc(both[0]) + __popc(both[1]); }
};

/// The slots of a line in the 64 samples from word `word` on.
struct LineWords {
  uint32_t bits[2];
  uint32_t signs[2];
};

__device__ inline LineWords lineWords(const uint32_t *bits, const uint32_t *signs, int64_t lines,
                                      int64_t line, int64_t word, int64_t words) {
  const int64_t at = word * lines + line;
  const bool two = word + 1 < words;
  return {{bits[at], two ? bits[at + lines] : 0u}, {signs[at], two ? signs[at + lines] : 0u}};
}

__device__ inline Hits hitsOf(const LineWords &x, const LineWords &d) {
  return {{x.bits[0] & d.bits[0], x.bits[1] & d.bits[1]},
          {x.signs[0] ^ d.signs[0], x.signs[1] ^ d.signs[1]}};
}

/// Writes the codes of a cell's coincidences so that the last comes just before `end`; returns
/// where the first is.
__device__ inline int listHits(const Hits &hits, int code, int end, WarpEvents &events) {
#pragma unroll
  for (int half = 1; half >= 0; --half) {
#pragma unroll 1
    for (uint32_t rest = hits.both[half]; rest;) {
      const int bit = 31 - __clz(static_cast<int>(rest));
      rest ^= 1u << bit;
      const int up = static_cast<int>(hits.differ[half] >> bit) & 1;
      events.code[--end] = static_cast<uint16_t>(code | up << 6 | half << 5 | bit);
    }
  }
  return end;
}

/// One cell by itself, where a warp has more coincidences than its list holds.
template <class Device>
__device__ __noinline__ float applyHits(const Array<Device> &a, const typename Device::Response &response,
                           const Hits &hits, uint64_t cell, uint64_t firstSample, float w) {
#pragma unroll 1
  for (int s = 0; s < 64; ++s) {
    if (!(hits.both[s >> 5] >> (s & 31) & 1u)) continue;
    const float z = normalOfSample(a.rounds, Purpose::CycleNoise, cell,
                                   firstSample + static_cast<uint64_t>(s));
    w = onePulse<Device>(w, hits.differ[s >> 5] >> (s & 31) & 1u, response, a.params, z);
  }
  return w;
}

/// Rows `firstRow` to `firstRow` + kRowsAtOnce - 1 of this warp.
template <class Device>
__device__ __forceinline__ unsigned updateSparse(const Array<Device> &a, const PulseWords &p,
                                                 int64_t samples, Partition part, int firstRow,
                                                 WarpEvents &events) {
  using Stored = typename Array<Device>::Stored;
  const int lane = static_cast<int>(threadIdx.x & 31);
  const ThreadCell first = threadCell(a, part, firstRow);
  const int64_t rowStride = kWarps * a.cols;  // between rows of a warp
  const int rows = part.rowsPerWarp - firstRow;
  const int64_t words = (samples + 31) / 32;
  const auto live = [&](int r) {
    return r == 0 ? first.live : first.live && r < rows && first.row + r * kWarps < a.rows;
  };
  unsigned pulses = 0;
  for (int64_t word = 0; word < words; word += 2) {
    const uint64_t firstSample = p.firstSample + static_cast<uint64_t>(32 * word);
    Hits hits[kRowsAtOnce] = {};
    Stored stored[kRowsAtOnce];
    float w[kRowsAtOnce];
    if (first.live) {
      const LineWords x = lineWords(p.xBits, p.xSigns, p.xSize, first.col, word, words);
#pragma unroll
      for (int r = 0; r < kRowsAtOnce; ++r) {
        if (!live(r)) continue;
        hits[r] = hitsOf(
            x, lineWords(p.dBits, p.dSigns, p.dSize, first.row + r * kWarps, word, words));
        stored[r] = a.stored(first.index + r * rowStride);
        w[r] = a.weights[first.index + r * rowStride];
      }
    }
    int mine = 0;
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) mine += hits[r].count();
    pulses += static_cast<unsigned>(mine);
    int end = mine;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int below = __shfl_up_sync(0xffffffffu, end, step);
      end += lane >= step ? below : 0;
    }
    const int total = __shfl_sync(0xffffffffu, end, 31);
    if (total > kEventsPerWarp) {
#pragma unroll
      for (int r = 0; r < kRowsAtOnce; ++r) {
        if (!live(r)) continue;
        const int64_t i = first.index + r * rowStride;
        a.weights[i] = applyHits(a, a.response(stored[r]), hits[r], static_cast<uint64_t>(i),
                                 firstSample, w[r]);
      }
      continue;
    }
    int at = end;
#pragma unroll
    for (int r = kRowsAtOnce - 1; r >= 0; --r)
      at = listHits(hits[r], r << 12 | lane << 7, at, events);
    __syncwarp();
    const auto warpCell = static_cast<uint64_t>(first.index - lane);
#pragma unroll 1
    for (int e = lane; e < total; e += 32) {
      const uint32_t code = events.code[e];
      const uint64_t cell = warpCell + (code >> 7 & 31u) +
                            static_cast<uint64_t>(code >> 12) * static_cast<uint64_t>(rowStride);
      events.z[e] = normalOfSample(a.rounds, Purpose::CycleNoise, cell, firstSample + (code & 63u));
    }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      const int count = hits[r].count();
      if (count == 0) continue;
      const typename Device::Response response = a.response(stored[r]);
#pragma unroll 1
      for (const int last = at + count; at < last; ++at) {
        w[r] = onePulse<Device>(w[r], events.code[at] >> 6 & 1, response, a.params, events.z[at]);
      }
      a.weights[first.index + r * rowStride] = w[r];
    }
    __syncwarp();
  }
  return pulses;
}

}  // namespace gpu
}  // namespace RPU
