#pragma once

#include "cuda/array/affine_update.cuh"
#include "cuda/array/batch_counts.cuh"
#include "cuda/array/deferred_cells.cuh"
#include "cuda/array/pulsed_update.cuh"

// Updates with noise_merge = "batch": the steps come from devices/batch_noise.h.
//
//   tiled: large arrays; the tensor cores count pulses (cuda/array/batch_counts.cuh).
//
//   rows: everything else; a thread counts for a cell of each row of its warp, or takes the
//   samples of that cell in order (cuda/array/affine_update.cuh).
//
// Both defer the cells that must go sample by sample to a second kernel.

namespace pulsora {
namespace gpu {

constexpr int kMergeBlocks = 5;  // of a processor: the compiler keeps to 96 registers for them
constexpr int kRowBlocks = 6;    // likewise, to 80 registers

/// The weight of one cell after all its pulses at once. If `holds` becomes false, the weight is
/// unchanged and the cell must go sample by sample.
template <class Device>
__device__ __forceinline__ float mergeCell(const Array<Device> &a, float w,
                                           const typename Array<Device>::Stored &stored,
                                           const CellCounts &n, float z, bool &holds) {
  const float merged = mergedPulses<Device>(w, static_cast<float>(n.up), static_cast<float>(n.down),
                                            a.response(stored), a.params, z, holds);
  return holds ? merged : w;
}

/// Adds the threads' pulses to the ledger.
__device__ inline void addPulses(unsigned long long pulses, uint64_t *coincidences) {
  for (int step = 16; step > 0; step /= 2) pulses += __shfl_xor_sync(0xffffffffu, pulses, step);
  if ((threadIdx.x & 31) == 0 && pulses)
    atomicAdd(reinterpret_cast<unsigned long long *>(coincidences), pulses);
}

// --- rows

__device__ inline CellCounts countCell(const Samples &s, int64_t row, int64_t col) {
  const PulseWords &p = s.words;
  CellCounts c{};
  if (hasLevels(p.kind)) {
    for (int64_t sample = 0; sample < s.count; ++sample) {
      const int n = signedCoincidences(p, s.layout, sample, row, col);
      c.up += ::max(n, 0);
      c.down += ::max(-n, 0);
    }
    return c;
  }
  const int64_t words = s.layout.words(s.count);
#pragma unroll 4
  for (int64_t word = 0; word < words; ++word) {
    const uint32_t both = slotsOfBoth(p, word, row, col);
    const uint32_t up = slotsUp(p, word, row, col);
    c.up += __popc(both & up);
    c.down += __popc(both & ~up);
  }
  return c;
}

/// Normals for `rows` rows of a warp; cellOf(r, k) is cell k of row r. With `inEights`, eight
/// neighbouring cells share a draw, so that a thread draws for eight cells at a time.
template <class Device, class CellOf>
__device__ __forceinline__ void drawNormals(const Array<Device> &a, uint64_t firstSample, int rows,
                                            bool inEights, const CellOf &cellOf,
                                            float (&z)[8][kTileCols]) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  if (!inEights) {
#pragma unroll 1
    for (int i = lane; i < rows * kTileCols; i += 32) {
      const int64_t cell = cellOf(i / kTileCols, i % kTileCols);
      z[i / kTileCols][i % kTileCols] =
          normalOfUpdate(a.rounds, static_cast<uint64_t>(cell), firstSample);
    }
    return;
  }
#pragma unroll 1
  for (int i = lane; i < rows * (kTileCols / 8); i += 32) {
    const int r = i / (kTileCols / 8);
    const int c = i % (kTileCols / 8) * 8;
    const auto cell = static_cast<uint64_t>(cellOf(r, c));
    const Normal8 normals = normal8(drawOfUpdate(a.rounds, cell >> 3, firstSample));
#pragma unroll
    for (int k = 0; k < 8; ++k) z[r][c + k] = normals.z[k];
  }
}

/// The weight of this thread's cell after all its pulses at once, with normal z; adds their number
/// to `pulses`. If `holds` becomes false, the weight is unchanged.
template <class Device>
__device__ __forceinline__ float mergeThreadCell(const Array<Device> &a, const Samples &samples,
                                                 const ThreadCell &c, float z,
                                                 unsigned long long &pulses, bool &holds) {
  if constexpr (kMergesInOrder<Device>) {
    return mergeCellInOrder(a, samples, c, z, pulses, holds);
  } else {
    const CellCounts n = countCell(samples, c.row, c.col);
    pulses += static_cast<unsigned long long>(n.up) + static_cast<unsigned long long>(n.down);
    return mergeCell(a, a.weights[c.index], a.stored(c.index), n, z, holds);
  }
}

static_assert(kMergeThreads == kUpdateThreads, "blocks are those of updates");
static_assert(kRowsPerWarp == 8 && kTileCols == 32, "normals are drawn for the rows of a warp");

template <class Device>
__global__ void __launch_bounds__(kMergeThreads, kRowBlocks)
    mergeRowsKernel(const __grid_constant__ Array<Device> a, const __grid_constant__ PulseWords p,
                    Blocks blocks, uint64_t *coincidences, uint32_t *deferred) {
  awaitEarlier();
  __shared__ alignas(16) float z[kWarps][kRowsPerWarp][kTileCols];
  __shared__ uint16_t cells[kRowsPerWarp * kMergeThreads];
  __shared__ int cellCount;
  __shared__ uint32_t base;
  const BlockList list{cells, &cellCount};
  list.clear();
  __syncthreads();
  const Partition part = blocks.at(blockIdx.x);
  const Samples samples{p, *p.layout, p.sampleCount()};
  const auto me = static_cast<int>(threadIdx.x);
  const int warp = me >> 5;
  const auto cellOf = [&](int r, int k) { return cellOfThread(a, part, r, warp * 32 + k).index; };
  drawNormals(a, p.firstSample, part.rowsPerWarp, part.flat || a.cols % 8 == 0, cellOf, z[warp]);
  __syncwarp();
  unsigned long long pulses = 0;
#pragma unroll 1
  for (int r = 0; r < part.rowsPerWarp; ++r) {
    const ThreadCell c = threadCell(a, part, r);
    if (!c.live) continue;
    bool holds = false;
    a.weights[c.index] = mergeThreadCell(a, samples, c, z[warp][r][me & 31], pulses, holds);
    if (!holds) list.add(r * kMergeThreads + me);
  }
  addPulses(pulses, coincidences);
  list.append(deferred, base, [&](int cell) {
    return cellOfThread(a, part, cell / kMergeThreads, cell % kMergeThreads).index;
  });
}

// --- tiled

/// The stored members of four neighbouring cells of a row.
template <class Device>
struct FourCells {
  float4 w;
  ushort4 members[Array<Device>::kMembers];

  /// `at` is the first cell; `there` of the four exist. One access for all four if `aligned`.
  __device__ __forceinline__ void read(const Array<Device> &a, int64_t at, int there,
                                       bool aligned) {
    if (there <= 0) return;
    if (aligned) {
      w = *reinterpret_cast<const float4 *>(a.weights + at);
#pragma unroll
      for (int m = 0; m < Array<Device>::kMembers; ++m)
        members[m] = *reinterpret_cast<const ushort4 *>(a.cells + at + m * a.size());
      return;
    }
    const auto last = [&](int k) { return at + (k < there ? k : there - 1); };
    w = {a.weights[at], a.weights[last(1)], a.weights[last(2)], a.weights[last(3)]};
#pragma unroll
    for (int m = 0; m < Array<Device>::kMembers; ++m) {
      const uint16_t *member = a.cells + m * a.size();
      members[m] = {member[at], member[last(1)], member[last(2)], member[last(3)]};
    }
  }
  __device__ __forceinline__ void write(const Array<Device> &a, int64_t at, int there,
                                        bool aligned) const {
    if (aligned) {
      *reinterpret_cast<float4 *>(a.weights + at) = w;
      return;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (k < there) a.weights[at + k] = (&w.x)[k];
    }
  }
  __device__ __forceinline__ typename Array<Device>::Stored stored(int k) const {
    typename Array<Device>::Stored s{};
#pragma unroll
    for (int m = 0; m < Array<Device>::kMembers; ++m)
      s.words[m / 2] |= static_cast<uint32_t>((&members[m].x)[k]) << 16 * (m % 2);
    return s;
  }
};

/// Applies the counts of a warp, eight rows at a time; a lane takes four neighbours in each of two
/// rows. The cells' stored members are loaded while normals are made.
template <class Device>
__device__ __forceinline__ void mergeTile(const Array<Device> &a, uint64_t firstSample,
                                          const TilePlace &place, CountTile &tile,
                                          const BlockList &list, bool aligned) {
  const int warp = static_cast<int>(threadIdx.x >> 5);
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int laneRow = lane / 8;
  const int laneCol = lane % 8 * 4;
#pragma unroll 1
  for (int part = 0; part < kWarpRows / 8; ++part) {
    const int firstRow = warp * kWarpRows + 8 * part + laneRow;
    const int64_t first = (place.row + firstRow) * a.cols + place.col + laneCol;
    const auto there = [&](int i) {
      const int64_t left = a.cols - place.col - laneCol;
      return place.row + firstRow + 4 * i < a.rows ? static_cast<int>(left < 4 ? left : 4) : 0;
    };
    FourCells<Device> cells[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) cells[i].read(a, first + 4 * i * a.cols, there(i), aligned);
    __syncwarp();
    const int64_t from = (place.row + firstRow - laneRow) * a.cols + place.col;
    drawNormals(
        a, firstSample, 8, a.cols % 8 == 0, [&](int r, int k) { return from + r * a.cols + k; },
        tile.z[warp]);
    __syncwarp();
    uint32_t unmerged = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (there(i) <= 0) continue;
      const int row = 4 * i + laneRow;
      const auto z = *reinterpret_cast<const float4 *>(&tile.z[warp][row][laneCol]);
      float4 w = cells[i].w;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        bool holds = false;
        (&w.x)[k] = mergeCell(a, (&w.x)[k], cells[i].stored(k),
                              tile.counts[warp][8 * part + row][laneCol + k], (&z.x)[k], holds);
        if (!holds && k < there(i)) unmerged |= 1u << (4 * i + k);
      }
      cells[i].w = w;
      cells[i].write(a, first + 4 * i * a.cols, there(i), aligned);
    }
    list.addAll(unmerged,
                [&](int bit) { return (firstRow + bit / 4 * 4) * kTileCols + laneCol + bit % 4; });
  }
}

/// Prefetches the stored members of a tile's cells into the cache, before pulses are counted.
template <class Device>
__device__ __forceinline__ void prefetchTile(const Array<Device> &a, const TilePlace &place) {
  const int64_t row = place.row + threadIdx.x;
  static_assert(kTileRows <= kMergeThreads, "a thread asks for one row");
  if (threadIdx.x >= kTileRows || row >= a.rows) return;
  const int64_t index = row * a.cols + place.col;
  const auto ask = [](const void *address) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
  };
  for (int c = 0; c < kTileCols && place.col + c < a.cols; c += 32) ask(a.weights + index + c);
#pragma unroll
  for (int m = 0; m < Array<Device>::kMembers; ++m) ask(a.cells + m * a.size() + index);
}

template <class Device>
__global__ void __launch_bounds__(kMergeThreads, kMergeBlocks)
    mergeTilesKernel(const __grid_constant__ Array<Device> a, const __grid_constant__ PulseWords p,
                     uint64_t *coincidences, uint32_t *deferred, bool aligned) {
  awaitEarlier();
  __shared__ CountTile tile;
  __shared__ uint32_t base;
  const BlockList list{tile.deferred, &tile.deferredCount};
  list.clear();
  const auto across = static_cast<unsigned>((a.cols + kTileCols - 1) / kTileCols);
  const TilePlace place = {int64_t{blockIdx.x / across} * kTileRows,
                           int64_t{blockIdx.x % across} * kTileCols};
  prefetchTile(a, place);
  const Samples samples{p, *p.layout, p.sampleCount()};
  WarpCounts counts;
  countTile(samples, place, tile, counts);
  unsigned long long pulses = 0;
#pragma unroll
  for (int i = 0; i < kWarpRows * kTileCols / 32; ++i) {  // the cells of a lane
    pulses += static_cast<unsigned>(counts.total[i / kTileCols][i / 4 % (kTileCols / 8)][i % 4]);
  }
  addPulses(pulses, coincidences);
  storeCounts(counts, tile.counts[threadIdx.x >> 5]);
  mergeTile(a, p.firstSample, place, tile, list, aligned);
  list.append(deferred, base, [&](int cell) {
    return (place.row + cell / kTileCols) * a.cols + place.col + cell % kTileCols;
  });
}

}  // namespace gpu
}  // namespace pulsora
