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

__device__ inline Hits hitsOf(const LineWords &x, const LineWords &d, uint32_t mask) {
  return {{x.bits[0] & d.bits[0] & mask, x.bits[1] & d.bits[1] & mask},
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
__device__ __noinline__ void applyHits(const Array<Device> &a, const Hits &hits, int64_t index,
                                       uint64_t firstSample) {
  const typename Device::Response response = a.response(index);
  float w = a.weights[index];
#pragma unroll 1
  for (int s = 0; s < 64; ++s) {
    if (!(hits.both[s >> 5] >> (s & 31) & 1u)) continue;
    const float z = normalOfSample(a.rounds, Purpose::CycleNoise, static_cast<uint64_t>(index),
                                   firstSample + static_cast<uint64_t>(s));
    w = onePulse<Device>(w, hits.differ[s >> 5] >> (s & 31) & 1u, response, a.params, z);
  }
  a.weights[index] = w;
}

/// 64 samples for up to four rows of a warp, from `row` on. Threads and rows beyond the array read
/// a neighbour and write nothing, so that all loads can be under way at once.
template <class Device>
__device__ __forceinline__ unsigned updateRows(const Array<Device> &a, const PulseWords &p,
                                               int64_t word, int64_t words, int row, int endRow,
                                               int col, WarpEvents &events) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int lastRow = static_cast<int>(a.rows) - 1;
  const int readCol = ::min(col, static_cast<int>(a.cols) - 1);
  const uint64_t firstSample = p.firstSample + static_cast<uint64_t>(32 * word);
  const LineWords x = lineWords(p.xBits, p.xSigns, p.xSize, readCol, word, words);
  LineWords d[kRowsAtOnce];
#pragma unroll
  for (int r = 0; r < kRowsAtOnce; ++r) {
    d[r] = lineWords(p.dBits, p.dSigns, p.dSize, ::min(row + r * kWarps, lastRow), word, words);
  }
  Hits hits[kRowsAtOnce];
  uint32_t counts = 0;  // a byte for each row
  int mine = 0;
#pragma unroll
  for (int r = 0; r < kRowsAtOnce; ++r) {
    hits[r] = hitsOf(x, d[r], row + r * kWarps < endRow ? 0xffffffffu : 0u);
    counts |= static_cast<uint32_t>(hits[r].count()) << 8 * r;
    mine += hits[r].count();
  }
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
      if (row + r * kWarps < endRow)
        applyHits(a, hits[r], (row + r * kWarps) * a.cols + col, firstSample);
    }
    return static_cast<unsigned>(mine);
  }
  int at = end;
#pragma unroll
  for (int r = kRowsAtOnce - 1; r >= 0; --r)
    at = listHits(hits[r], r << 12 | lane << 7, at, events);
  typename Array<Device>::Stored stored[kRowsAtOnce];
  float w[kRowsAtOnce];
#pragma unroll
  for (int r = 0; r < kRowsAtOnce; ++r) {  // they arrive while normals are made
    const int64_t i = ::min(row + r * kWarps, lastRow) * a.cols + readCol;
    stored[r] = a.stored(i);
    w[r] = a.weights[i];
  }
  __syncwarp();
  const int64_t rowStride = kWarps * a.cols;  // between rows of a warp
  // The cell of lane 0; lanes hold neighbours, also where a warp's cells lie in several rows.
  const auto warpCell = static_cast<uint64_t>(row * a.cols + col) - static_cast<uint64_t>(lane);
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
    const int count = static_cast<int>(counts >> 8 * r & 255u);
    if (count == 0) continue;
    const typename Device::Response response = a.response(stored[r]);
#pragma unroll 1
    for (const int last = at + count; at < last; ++at) {
      w[r] = onePulse<Device>(w[r], events.code[at] >> 6 & 1, response, a.params, events.z[at]);
    }
    a.weights[(row + r * kWarps) * a.cols + col] = w[r];
  }
  __syncwarp();
  return static_cast<unsigned>(mine);
}

/// All rows of this warp.
template <class Device>
__device__ __forceinline__ unsigned updateSparse(const Array<Device> &a, const PulseWords &p,
                                                 int64_t samples, Partition part,
                                                 WarpEvents &events) {
  const ThreadCell first = threadCell(a, part, 0);
  const int afterLast = first.row + part.rowsPerWarp * kWarps;
  const int endOfWarp = part.flat ? first.row + 1 : ::min(afterLast, static_cast<int>(a.rows));
  const int endRow = first.col < a.cols && first.row < a.rows ? endOfWarp : 0;
  const int64_t words = (samples + 31) / 32;
  unsigned pulses = 0;
#pragma unroll 1
  for (int row = first.row; row < afterLast; row += kRowsAtOnce * kWarps) {
#pragma unroll 1
    for (int64_t word = 0; word < words; word += 2) {
      pulses += updateRows(a, p, word, words, row, endRow, first.col, events);
    }
    if (part.flat) break;
  }
  return pulses;
}

}  // namespace gpu
}  // namespace RPU
