#pragma once

#include "cuda/array/pulsed_array.cuh"
#include "devices/batch_noise.h"
#include "pulses/coincidences.h"

// Deferred cells are cells that must not take a mini-batch at once. The kernel that counts pulses
// lists them, because each would hold up its whole block; then warps of such cells take them
// through 64 samples at a time, in groups of eight, by closed forms. At the first group in which a
// form does not hold, a cell is deferred again, to warps of its block with the whole rule.

namespace pulsora {
namespace gpu {

constexpr int kDeferredSamples = 64;
constexpr int kDeferredAgain = 512;  // cells of a block

/// Deferred cells of a block, by numbers that are local to the block.
struct BlockList {
  uint16_t *cells;  // in shared memory
  int *count;

  __device__ void clear() const {
    if (threadIdx.x == 0) *count = 0;
  }
  __device__ void add(int cell) const { cells[atomicAdd(count, 1)] = static_cast<uint16_t>(cell); }
  /// Adds the cells cellOf(i) for all bits i of `mask` that are set.
  template <class CellOf>
  __device__ void addAll(uint32_t mask, const CellOf &cellOf) const {
    if (mask == 0) return;
    for (int at = atomicAdd(count, __popc(mask)); mask != 0; mask &= mask - 1, ++at)
      cells[at] = static_cast<uint16_t>(cellOf(__ffs(static_cast<int>(mask)) - 1));
  }
  /// Appends the cells to the array's list: their number, then their indices. For all threads of
  /// the block; `base` is shared.
  template <class IndexOf>
  __device__ void append(uint32_t *deferred, uint32_t &base, const IndexOf &indexOf) const {
    __syncthreads();
    if (threadIdx.x == 0 && *count > 0) base = atomicAdd(deferred, static_cast<uint32_t>(*count));
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < *count; i += static_cast<int>(blockDim.x))
      deferred[1 + base + static_cast<uint32_t>(i)] = static_cast<uint32_t>(indexOf(cells[i]));
  }
};

/// A mini-batch and the layout of its words.
struct Samples {
  const PulseWords &words;
  PulseLayout layout;
  int64_t count;
};

/// Signed coincidences of one cell in eight samples, 0 outside the mini-batch. All words are
/// requested before any is used.
__device__ __forceinline__ void countEight(const Samples &s, int64_t first, int64_t row,
                                           int64_t col, int (&n)[8]) {
  const PulseWords &p = s.words;
  const bool oneWord = !hasLevels(p.kind) && s.layout.wordsPerSample == 1;
  if (!oneWord) {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const bool there = first + k >= 0 && first + k < s.count;
      n[k] = there ? signedCoincidences(p, s.layout, first + k, row, col) : 0;
    }
    return;
  }
  const uint32_t mask = slotMask(s.layout.slots);
  SlotPlace at = SlotPlace::of(s.layout, first < 0 ? 0 : first);
  const int end = s.layout.samplesPerWord * s.layout.slots;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const bool there = first + k >= 0 && first + k < s.count;
    n[k] = 0;
    if (there) {
      const int both = __popc(slotsOfBoth(p, at.word, row, col) >> at.shift & mask);
      n[k] = (slotsUp(p, at.word, row, col) >> at.shift & 1u) != 0 ? both : -both;
      at.shift += s.layout.slots;
      if (at.shift >= end) {
        at.shift = 0;
        ++at.word;
      }
    }
  }
}

/// One deferred cell during some samples.
template <class Device>
struct DeferredCell {
  int64_t index;
  int64_t row;
  int64_t col;
  typename Device::Response response;
  float w;

  __device__ DeferredCell(const Array<Device> &a, int64_t i)
      : index(i),
        row(i / a.cols),
        col(i - row * a.cols),
        response(a.response(i)),
        w(a.weights[i]) {}
};

/// A sample of n pulses by the closed form. `holds` tells whether the closed form may replace
/// single pulses; for up to one pulse it always may.
template <class Device>
__device__ __forceinline__ float closedSample(const Array<Device> &a, const DeferredCell<Device> &c,
                                              float w, int n, float z, bool &holds) {
  const PulseSum sum = pulseSum(static_cast<float>(::max(::abs(n), 1)), a.params);
  const float moved = closedPulses<Device>(w, sum, n > 0, c.response, a.params, z, holds);
  holds = holds | (::abs(n) <= 1);
  return n != 0 ? moved : w;
}

/// Takes a cell through groups [0, end) of eight samples, from `first` on, by closed forms, as long
/// as they hold. Returns the group in which one does not, with the weight before it, or `end`.
template <class Device>
__device__ __forceinline__ int closedEights(const Array<Device> &a, const Samples &s, int64_t first,
                                            int end, DeferredCell<Device> &c) {
#pragma unroll 1
  for (int eight = 0; eight < end; ++eight) {
    int n[8];
    countEight(s, first + 8 * eight, c.row, c.col, n);
    const uint64_t sample = s.words.firstSample + static_cast<uint64_t>(first + 8 * eight);
    const Normal8 z =
        normal8(draw(a.rounds, Purpose::CycleNoise, static_cast<uint64_t>(c.index), sample >> 3));
    float w = c.w;
    bool allHold = true;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      bool holds = false;
      w = closedSample(a, c, w, n[k], z.z[k], holds);
      allHold = allHold & holds;
    }
    if (!allHold) return eight;
    c.w = w;
  }
  return end;
}

/// sequentialPulses(), with normals for eight pulses made at once: normals do not depend on the
/// weight.
template <class Device>
__device__ __noinline__ float pulseByPulse(const Array<Device> &a,
                                           typename Device::Response response, float w, int n,
                                           float z, uint64_t cell, uint64_t sample) {
  const int pulses = ::abs(n);
#pragma unroll 1
  for (int first = 0; first < pulses; first += 8) {
    Normal8 xi = normal8(
        draw(a.rounds, Purpose::CyclePulse, cell, sample, static_cast<uint32_t>(first) >> 3));
    xi.z[0] = first == 0 ? z : xi.z[0];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      if (k == 4 && first + k >= pulses) break;
      const float moved = onePulse<Device>(w, n > 0, response, a.params, xi.z[k]);
      w = first + k < pulses ? moved : w;
    }
  }
  return w;
}

/// Takes a cell through groups [begin, end) of eight samples, from `first` on, by the whole rule.
template <class Device>
__device__ __forceinline__ void ruledEights(const Array<Device> &a, const Samples &s, int64_t first,
                                            int begin, int end, DeferredCell<Device> &c) {
  const auto cell = static_cast<uint64_t>(c.index);
#pragma unroll 1
  for (int eight = begin; eight < end; ++eight) {
    int n[8];
    countEight(s, first + 8 * eight, c.row, c.col, n);
    const uint64_t sample = s.words.firstSample + static_cast<uint64_t>(first + 8 * eight);
    const Normal8 z = normal8(draw(a.rounds, Purpose::CycleNoise, cell, sample >> 3));
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      bool holds = false;
      const float moved = closedSample(a, c, c.w, n[k], z.z[k], holds);
      c.w = holds ? moved
                  : pulseByPulse(a, c.response, c.w, n[k], z.z[k], cell,
                                 sample + static_cast<uint64_t>(k));
    }
  }
}

/// A cell that is deferred again.
struct DeferredAgain {
  uint32_t index;
  int eighth;  // the group of eight, of 64 samples, to continue from
};

/// Takes the deferred cells through the mini-batch.
template <class Device>
__global__ void __launch_bounds__(kDeferredThreads)
    deferredCellsKernel(const __grid_constant__ Array<Device> a,
                        const __grid_constant__ PulseWords p, const uint32_t *deferred) {
  awaitEarlier();
  __shared__ DeferredAgain again[kDeferredAgain];
  __shared__ int againCount;
  const Samples s{p, *p.layout, p.sampleCount()};
  const int64_t cells = *deferred;
  const int me = static_cast<int>(threadIdx.x);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kDeferredThreads;
  if (me == 0) againCount = 0;
  __syncthreads();
  for (int64_t first = -static_cast<int64_t>(p.firstSample & 7); first < s.count;
       first += kDeferredSamples) {
    const int64_t left = s.count - first;
    const int eights =
        static_cast<int>(left < kDeferredSamples ? (left + 7) / 8 : kDeferredSamples / 8);
    for (int64_t begin = static_cast<int64_t>(blockIdx.x) * kDeferredThreads; begin < cells;
         begin += stride) {
      if (begin + me < cells) {
        DeferredCell<Device> c(a, deferred[1 + begin + me]);
        const int stopped = closedEights(a, s, first, eights, c);
        a.weights[c.index] = c.w;
        if (stopped < eights)
          again[atomicAdd(&againCount, 1)] = {static_cast<uint32_t>(c.index), stopped};
      }
      __syncthreads();
      const int count = againCount;
      __syncthreads();
      if (count <= kDeferredAgain - kDeferredThreads && begin + stride < cells) continue;
      for (int i = me; i < count; i += kDeferredThreads) {
        DeferredCell<Device> c(a, again[i].index);
        ruledEights(a, s, first, again[i].eighth, eights, c);
        a.weights[c.index] = c.w;
      }
      if (me == 0) againCount = 0;
      __syncthreads();
    }
  }
}

}  // namespace gpu
}  // namespace pulsora
