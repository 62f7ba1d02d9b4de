#pragma once

#include "cuda/array/pulsed_array.cuh"

// Pulse trains of one slot: few cells have a pulse in a sample. A warp lists the coincidences of up
// to four rows of 32 cells in 64 samples, makes their normals with every lane busy, and then each
// lane applies its own in order. A loop in which each lane draws on demand is far slower: its lanes
// wait for one another. Instructions are the bound (benchmarks/NOTES.md), hence the packing.

namespace pulsora {
namespace gpu {

constexpr int kRowsPerWarp = 8;  // at most
constexpr int kRowsAtOnce = 4;
constexpr int kEventsPerWarp = 512;
constexpr int kCellStride = 34;  // between rows: neighbours in the list lie in different banks
constexpr int kBlocksOf64 = 9;   // of eight samples: 64 need not begin with a block

/// The slots of a line in 64 samples.
struct alignas(16) LineWords {
  uint32_t bits[2];
  uint32_t signs[2];
};

/// The coincidences of a cell in 32 samples, where the signs of its lines differ, and the code of
/// the last sample; 16 bytes, for one access.
struct alignas(16) HitWord {
  uint32_t hits;
  uint32_t differ;
  uint32_t code;
  uint32_t unused;
};

/// The coincidences of a warp's cells, with their normals. In a code, bit 31 tells pulses up, bits
/// 20 to 27 are the index in `cells`, and bits 1 to 7 count samples from the first one's block on:
/// entries of `cells` and `samples` have 16 bytes, so a shift and two masks make the offsets.
struct WarpEvents {
  union {
    HitWord words[2 * kRowsAtOnce][32];  // a column for each lane, until it has listed them
    struct {
      ElementRounds cells[kCellStride * kRowsAtOnce];
      float z[kEventsPerWarp];
    };
  };
  uint32_t codes[kEventsPerWarp];
  LineWords d[kRowsPerWarp];  // of 64 samples
  struct alignas(16) {
    SampleRounds rounds;
  } samples[kBlocksOf64];
};

/// The slots of a line from word `word` on; the second word may lie beyond the last one.
__device__ inline LineWords wordsOf(const uint32_t *bits, const uint32_t *signs, int64_t lines,
                                    int line, int64_t word, int64_t samples) {
  const int64_t at = word * lines + line;
  const bool two = 32 * (word + 1) < samples;
  return {{bits[at], two ? bits[at + lines] : 0u}, {signs[at], two ? signs[at + lines] : 0u}};
}

/// Takes one cell by itself, where a warp has more coincidences than its list holds.
template <class Device>
__device__ __noinline__ void applyHits(const Array<Device> &a, LineWords x, LineWords d,
                                       int64_t index, uint64_t firstSample) {
  const typename Device::Response response = a.response(index);
  float w = a.weights[index];
#pragma unroll 1
  for (int s = 0; s < 64; ++s) {
    const int bit = s & 31;
    if (!((x.bits[s >> 5] & d.bits[s >> 5]) >> bit & 1u)) continue;
    const float z = normalOfSample(a.rounds, Purpose::CycleNoise, static_cast<uint64_t>(index),
                                   firstSample + static_cast<uint64_t>(s));
    const bool up = (x.signs[s >> 5] ^ d.signs[s >> 5]) >> bit & 1u;
    w = onePulse<Device>(w, up, response, a.params, z);
  }
  a.weights[index] = w;
}

/// Leading zeros of a word that is not zero, in one instruction.
__device__ inline int leadingZeros(uint32_t word) {
  int zeros;
  asm("bfind.shiftamt.u32 %0, %1;" : "=r"(zeros) : "r"(word));
  return zeros;
}

/// Writes the codes of this lane's coincidences, the last one to `codes[end - 1]`. One loop over
/// all words of the lane, so that lanes wait for the lane with most coincidences only once.
__device__ __forceinline__ void listHits(const HitWord *words, int begin, int end,
                                         uint32_t *codes) {
  HitWord word{};
#pragma unroll 1
  while (end > begin) {
    if (word.hits == 0) {
      word = *words;
      words += 32;
    }
    const int zeros = leadingZeros(word.hits);
    const uint32_t up = word.differ << zeros & 0x80000000u;
    word.hits ^= 0x80000000u >> zeros;
    codes[--end] = (word.code - static_cast<uint32_t>(2 * zeros)) | up;
  }
}

/// The sum of `count` over the lanes up to this one.
__device__ inline int sumOfLanes(int count) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    // An instruction, because it tells whether there is such a lane.
    asm volatile(
        "{ .reg .s32 below; .reg .pred there;\n"
        "  shfl.sync.up.b32 below|there, %0, %1, 0, 0xffffffff;\n"
        "  @there add.s32 %0, %0, below; }"
        : "+r"(count)
        : "r"(step));
  }
  return count;
}

/// 64 samples for up to four rows of a warp, from `row` on, whose words are `d`. Threads and rows
/// beyond the array have no coincidences; they read a neighbour's cell, so that all loads can be
/// under way at once.
template <class Device>
__device__ __forceinline__ unsigned updateRows(const Array<Device> &a, uint64_t firstSample,
                                               const LineWords &x, const LineWords *d, int row,
                                               int col, WarpEvents &events) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  HitWord *word = &events.words[0][lane];
  uint32_t counts = 0;  // a byte for each row
  int mine = 0;
  const uint32_t code =
      static_cast<uint32_t>(lane) << 20 | (static_cast<uint32_t>(firstSample) & 7u) << 1;
#pragma unroll
  for (int r = kRowsAtOnce - 1; r >= 0; --r) {
    const LineWords own = d[r];
    int count = 0;
#pragma unroll
    for (int half = 1; half >= 0; --half) {
      const uint32_t hits = x.bits[half] & own.bits[half];
      count += __popc(hits);
      if (hits != 0) {
        *word = {hits, x.signs[half] ^ own.signs[half],
                 code + static_cast<uint32_t>(kCellStride * r << 20 | (32 * half + 31) << 1), 0u};
        word += 32;
      }
    }
    counts |= static_cast<uint32_t>(count) << 8 * r;
    mine += count;
  }
  const int end = sumOfLanes(mine);
  const int total = __shfl_sync(0xffffffffu, end, 31);
  // The rounds of a cell hold for blocks of samples that agree in the bits from 32 on.
  if (total > kEventsPerWarp || firstSample >> 35 != (firstSample + 63) >> 35) {
#pragma unroll 1
    for (int r = 0; r < kRowsAtOnce; ++r) {
      if ((counts >> 8 * r & 255u) != 0)
        applyHits(a, x, d[r], (row + r * kWarps) * a.cols + col, firstSample);
    }
    __syncwarp();
    return static_cast<unsigned>(mine);
  }
  int at = end - mine;
  listHits(&events.words[0][lane], at, end, events.codes);
  uint32_t cell[kRowsAtOnce];  // an array has at most 2^32 cells
  typename Array<Device>::Stored stored[kRowsAtOnce];
  float w[kRowsAtOnce];
#pragma unroll
  for (int r = 0; r < kRowsAtOnce; ++r) {  // loads complete while normals are made
    const int readRow = ::min(row + r * kWarps, static_cast<int>(a.rows) - 1);
    const int readCol = ::min(col, static_cast<int>(a.cols) - 1);
    cell[r] = static_cast<uint32_t>(readRow) * static_cast<uint32_t>(a.cols) +
              static_cast<uint32_t>(readCol);
    stored[r] = a.stored(cell[r]);
    w[r] = a.weights[cell[r]];
  }
  __syncwarp();
#pragma unroll
  for (int r = 0; r < kRowsAtOnce; ++r) {
    events.cells[kCellStride * r + lane] =
        elementRounds(a.rounds, Purpose::CycleNoise, cell[r], firstSample >> 3);
  }
  __syncwarp();
#pragma unroll 1
  for (int e = lane; e < total; e += 32) {
    const uint32_t code = events.codes[e];
    const Philox4 block = joinRounds(a.rounds, events.cells[code >> 20 & 255u],
                                     events.samples[code >> 4 & 15u].rounds);
    events.z[e] = normalOf(block, code >> 1);
  }
  __syncwarp();
#pragma unroll
  for (int r = 0; r < kRowsAtOnce; ++r) {
    const int count = static_cast<int>(counts >> 8 * r & 255u);
    const typename Device::Response response = a.response(stored[r]);
#pragma unroll 1
    for (const int last = at + count; at < last; ++at) {
      w[r] = onePulse<Device>(w[r], static_cast<int>(events.codes[at]) < 0, response, a.params,
                              events.z[at]);
    }
    if (count != 0) a.weights[cell[r]] = w[r];
  }
  __syncwarp();
  return static_cast<unsigned>(mine);
}

/// The lines of a warp's cells, in the form that a search for coincidences needs: the x line of
/// this lane's column, and d lines, one row in kWarps of which belongs to the warp.
struct WarpLines {
  const uint32_t *x;
  const uint32_t *d;
  int xSize;
  int dSize;
  int row;
  int rowsPerWarp;
  bool live;
};

/// The first word from `word` on in which a cell of this warp has a coincidence; the number of
/// words if there is none.
__device__ __noinline__ inline int nextWordWithHits(WarpLines lines, int words, int word) {
  constexpr int kAhead = 16;  // words whose loads are in flight together, hence no branches
#pragma unroll 1
  for (; word < words; word += kAhead) {
    uint32_t hits[kAhead] = {};
#pragma unroll 1
    for (int r = 0; r < lines.rowsPerWarp; ++r) {
      const uint32_t *d = lines.d + ::min(lines.row + r * kWarps, lines.dSize - 1);
#pragma unroll
      for (int u = 0; u < kAhead; ++u)
        hits[u] |= d[static_cast<int64_t>(::min(word + u, words - 1)) * lines.dSize];
    }
    uint32_t any = 0;
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      hits[u] &= lines.x[static_cast<int64_t>(::min(word + u, words - 1)) * lines.xSize];
      any |= hits[u];
    }
    if (!__any_sync(0xffffffffu, lines.live && any != 0)) continue;
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      if (__any_sync(0xffffffffu, lines.live && hits[u] != 0)) return ::min(word + u, words - 1);
    }
  }
  return words;
}

/// All rows of this warp.
template <class Device>
__device__ __forceinline__ unsigned updateSparse(const Array<Device> &a, const PulseWords &p,
                                                 int64_t samples, Partition part,
                                                 WarpEvents &events) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const ThreadCell first = threadCell(a, part, 0);
  const int endRow = first.row + part.rowsPerWarp * kWarps;
  unsigned pulses = 0;
  // With the thousands of samples of a convolution, most words have no coincidence. The search for
  // the next word that has one is given up after kMostVain vain searches.
  constexpr int64_t kManySamples = 2048;
  constexpr int kMostVain = 8;
  int vain = samples < kManySamples ? kMostVain : 0;
#pragma unroll 1
  for (int64_t word = 0; 32 * word < samples; word += 2) {
    if (vain < kMostVain) {
      const int col = ::min(first.col, static_cast<int>(a.cols) - 1);
      const WarpLines lines{p.xBits + col,
                            p.dBits,
                            static_cast<int>(p.xSize),
                            static_cast<int>(p.dSize),
                            first.row,
                            part.rowsPerWarp,
                            first.live};
      const int64_t next =
          nextWordWithHits(lines, static_cast<int>((samples + 31) / 32), static_cast<int>(word));
      if (next == word) ++vain;
      word = next;
      if (32 * word >= samples) break;
    }
    const uint64_t firstSample = p.firstSample + static_cast<uint64_t>(32 * word);
    // Each lane fetches one word of the rows' LineWords.
    const int half = lane & 1;
    const bool there = 32 * (word + half) < samples;
    const int row = first.row + (lane >> 2) * kWarps;
    LineWords x{};
    if (first.live) x = wordsOf(p.xBits, p.xSigns, p.xSize, first.col, word, samples);
    uint32_t d = 0;
    if (part.flat) {
      // Each lane has a row of its own, so the words of both its lines are combined here.
      LineWords own{};
      if (first.live) own = wordsOf(p.dBits, p.dSigns, p.dSize, first.row, word, samples);
      x = {{x.bits[0] & own.bits[0], x.bits[1] & own.bits[1]},
           {x.signs[0] ^ own.signs[0], x.signs[1] ^ own.signs[1]}};
      d = lane < 2 ? ~0u : 0u;
    } else if (there && row < ::min(endRow, static_cast<int>(a.rows))) {
      d = ((lane & 2) == 0 ? p.dBits : p.dSigns)[(word + half) * p.dSize + row];
    }
    reinterpret_cast<uint32_t *>(events.d)[lane] = d;
    if (lane < kBlocksOf64) {
      events.samples[lane].rounds = sampleRounds(a.rounds, Purpose::CycleNoise,
                                                 (firstSample >> 3) + static_cast<uint64_t>(lane));
    }
    __syncwarp();
#pragma unroll 1
    for (int r = 0; r < part.rowsPerWarp; r += kRowsAtOnce) {
      pulses +=
          updateRows(a, firstSample, x, events.d + r, first.row + r * kWarps, first.col, events);
    }
  }
  return pulses;
}

}  // namespace gpu
}  // namespace pulsora
