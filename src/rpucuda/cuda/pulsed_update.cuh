#pragma once

#include "core/half.h"
#include "cuda/check.cuh"
#include "devices/pulse_rule.h"
#include "pulsed_kernels.h"

// The pulsed update on the GPU: every weight is read and written once per mini-batch. A thread holds one cell in registers and
// walks through the mini-batch; the steps are those of devices/pulse_rule.h.

namespace RPU {
namespace gpu {

constexpr int kUpdateThreads = 256;
constexpr int kWarps = kUpdateThreads / 32;
constexpr int kEventsPerWarp = 192;

/// A CellArray whose parameters travel with the launch.
template <class Device>
struct Array {
  int64_t rows;
  int64_t cols;
  float *weights;
  const uint16_t *cells;
  RandomKey key;
  typename Device::Params params;

  static Array of(const CellArray &a) {
    return {a.rows, a.cols, a.weights, a.cells, a.key, *static_cast<const typename Device::Params *>(a.params)};
  }
  __device__ int64_t size() const { return rows * cols; }
  __device__ typename Device::Response response(int64_t i) const {
    typename Device::Cell cell;
    int64_t at = i;
    const int64_t plane = size();
    cell.members([&](const char *, float &value) {
      value = halfToFloat(cells[at]);
      at += plane;
    });
    return Device::response(cell, params);
  }
};

/// The cell of one thread; lanes of a warp hold neighbours.
template <class Device>
struct ThreadCell {
  int64_t index;
  int row;
  int col;
  bool live;  // threads beyond the array take part in warp-wide steps only
  float w;
  typename Device::Response response;
};

/// sequentialPulses() out of line: where a closed form exists this is the rare case, and inlined it would cost the common
/// one its registers.
template <class Device>
__device__ __noinline__ float rarePulses(float w, int n, bool up, typename Device::Response r,
                                         const typename Device::Params &p, float z, RandomKey key, uint64_t cell,
                                         uint64_t sample) {
  return sequentialPulses<Device>(w, n, up, r, p, z, key, cell, sample);
}

/// applyPulses() of devices/pulse_rule.h for a signed number of coincidences.
template <class Device>
__device__ __forceinline__ float apply(float w, int signedN, const typename Device::Response &r,
                                       const typename Device::Params &p, float z, RandomKey key, uint64_t cell,
                                       uint64_t sample) {
  const bool up = signedN > 0;
  const int n = abs(signedN);
  if constexpr (!kHasClosedForm<Device>) {
    return applyPulses<Device>(w, n, up, r, p, z, key, cell, sample);
  } else {
    bool holds = false;
    const float one = onePulse<Device>(w, up, r, p, z);
    const float closed = closedPulses<Device>(w, static_cast<float>(n), up, r, p, z, holds);
    const float result = n > 1 ? closed : (n == 1 ? one : w);
    if (n > 1 && !holds) return rarePulses<Device>(w, n, up, r, p, z, key, cell, sample);
    return result;
  }
}

/// Coincidences of one cell in sample s, of a kind that needs more than one word per sample; negative steps down.
__device__ inline int countSlowly(const PulseWords &p, const PulseLayout &layout, int64_t s, int row, int col) {
  if (p.kind > PulseKind::TwoPass) {
    const float length = static_cast<float>(p.trainLength[s]);
    const float scale = p.kind == PulseKind::MeanCount ? (length > 0.0f ? 1.0f / length : 0.0f) : length;
    return -static_cast<int>(RPU::rint(p.xLevels[s * p.xSize + col] * p.dLevels[s * p.dSize + row] * scale));
  }
  int count = 0;
  uint32_t differ = 0;
  for (int part = 0; part < layout.wordsPerSample; ++part) {
    const int64_t word = s * layout.wordsPerSample + part;
    const uint32_t xSigns = p.xSigns[word * p.xSize + col];
    uint32_t dBits = p.dBits[word * p.dSize + row];
    if (p.kind == PulseKind::TwoPass) {
      dBits = (dBits & ~xSigns) | (p.dBitsNegativeX[word * p.dSize + row] & xSigns);
    }
    count += __popc(p.xBits[word * p.xSize + col] & dBits);
    differ = (xSigns ^ p.dSigns[word * p.dSize + row]) & 1u;
  }
  return differ ? count : -count;
}

/// The words of one cell, read sample by sample.
struct WordCursor {
  const PulseWords &p;
  const PulseLayout &layout;
  int row;
  int col;
  int64_t word = 0;
  int shift = 0;
  uint32_t both = 0;    // coincidences of the present word
  uint32_t differ = 0;  // where the signs differ

  __device__ void load() {
    const uint32_t xSigns = p.xSigns[word * p.xSize + col];
    uint32_t dBits = p.dBits[word * p.dSize + row];
    if (p.kind == PulseKind::TwoPass) {
      dBits = (dBits & ~xSigns) | (p.dBitsNegativeX[word * p.dSize + row] & xSigns);
    }
    both = p.xBits[word * p.xSize + col] & dBits;
    differ = xSigns ^ p.dSigns[word * p.dSize + row];
  }
  /// Signed coincidences of the next sample; sample 0 at first.
  __device__ int next() {
    if (shift == 0) load();
    const int count = __popc((both >> shift) & slotMask(layout.slots));
    const int result = (differ >> shift) & 1u ? count : -count;
    shift += layout.slots;
    if (shift >= layout.samplesPerWord * layout.slots) {
      shift = 0;
      ++word;
    }
    return result;
  }
};

/// Sample by sample; one block of random words serves eight samples.
template <class Device>
__device__ unsigned updateDense(ThreadCell<Device> &c, const Array<Device> &a, const PulseWords &p,
                                const PulseLayout &layout) {
  const bool slow = p.kind > PulseKind::TwoPass || layout.wordsPerSample > 1;
  const auto cell = static_cast<uint64_t>(c.index);
  WordCursor cursor{p, layout, c.row, c.col};
  unsigned pulses = 0;
  int64_t s = 0;
  while (s < p.samples) {
    const uint64_t block = (p.firstSample + static_cast<uint64_t>(s)) >> 3;
    Philox4 random = draw(a.key, Purpose::CycleNoise, cell, block);
    const int64_t blockStart = static_cast<int64_t>((block << 3) - p.firstSample);
#pragma unroll 1
    for (int pair = 0; pair < 4; ++pair) {
      const NormalPair z = normalPair16(random.v[0]);
      random.v[0] = random.v[1];
      random.v[1] = random.v[2];
      random.v[2] = random.v[3];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t t = blockStart + 2 * pair + half;
        if (t != s || t >= p.samples) continue;  // before or behind the mini-batch
        const int n = slow ? countSlowly(p, layout, t, c.row, c.col) : cursor.next();
        pulses += static_cast<unsigned>(abs(n));
        c.w = apply<Device>(c.w, n, c.response, a.params, half ? z.z1 : z.z0, a.key, cell,
                            p.firstSample + static_cast<uint64_t>(t));
        ++s;
      }
    }
  }
  return pulses;
}

/// The events (samples with coincidences) of a warp's cells in one word, with their normals.
struct WarpEvents {
  float z[kEventsPerWarp];
  uint16_t code[kEventsPerWarp];  // lane << 8 | bit
};

/// Bits at which a sample with coincidences starts.
__device__ inline uint32_t eventBits(uint32_t both, const PulseLayout &layout) {
  if (layout.slots == 1) return both;
  uint32_t any = both;
  uint32_t firstSlots = 1;
  for (int k = 1; k < layout.slots; ++k) any |= both >> k;
  for (int k = 1; k < layout.samplesPerWord; ++k) firstSlots |= 1u << (k * layout.slots);
  return any & firstSlots;
}

/// Word by word; the warp lists its events and makes all their normals with every lane busy, then each lane applies its
/// own in order. The loop in which each lane draws when it needs to is far slower: its lanes wait for one another.
template <class Device>
__device__ unsigned updateSparse(ThreadCell<Device> &c, const Array<Device> &a, const PulseWords &p,
                                 const PulseLayout &layout, WarpEvents &events) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int64_t warpCell = c.index - lane;
  const int64_t words = layout.words(p.samples);
  unsigned pulses = 0;
  for (int64_t word = 0; word < words; ++word) {
    const uint64_t first = p.firstSample + static_cast<uint64_t>(word * layout.samplesPerWord);
    WordCursor cursor{p, layout, c.row, c.col, word};
    if (c.live) cursor.load();
    pulses += static_cast<unsigned>(__popc(cursor.both));
    uint32_t heads = eventBits(cursor.both, layout);
    const int mine = __popc(heads);
    int end = mine;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int below = __shfl_up_sync(0xffffffffu, end, step);
      end += lane >= step ? below : 0;
    }
    const int total = __shfl_sync(0xffffffffu, end, 31);
    const bool listed = total <= kEventsPerWarp;
    int at = end - mine;
    if (listed) {
      uint32_t rest = heads;
      for (int e = at; rest; ++e, rest &= rest - 1) {
        events.code[e] = static_cast<uint16_t>(lane << 8 | (__ffs(static_cast<int>(rest)) - 1));
      }
      __syncwarp();
      for (int e = lane; e < total; e += 32) {
        const int code = events.code[e];
        const auto sample = static_cast<uint64_t>((code & 255) / layout.slots);
        events.z[e] = normalOfSample(a.key, Purpose::CycleNoise, static_cast<uint64_t>(warpCell + (code >> 8)), first + sample);
      }
      __syncwarp();
    }
    for (; heads; heads &= heads - 1) {
      const int bit = __ffs(static_cast<int>(heads)) - 1;
      const uint64_t sample = first + static_cast<uint64_t>(bit / layout.slots);
      const auto cell = static_cast<uint64_t>(c.index);
      const float z = listed ? events.z[at++] : normalOfSample(a.key, Purpose::CycleNoise, cell, sample);
      const bool up = (cursor.differ >> bit) & 1u;
      if (layout.slots == 1) {
        c.w = onePulse<Device>(c.w, up, c.response, a.params, z);
      } else {
        const int n = __popc((cursor.both >> bit) & slotMask(layout.slots));
        c.w = apply<Device>(c.w, up ? n : -n, c.response, a.params, z, a.key, cell, sample);
      }
    }
    __syncwarp();
  }
  return pulses;
}

/// A warp takes 32 neighbouring columns and `rowsPerWarp` rows, one after another, so that the words of its columns are
/// read from the first cache; with `flat`, 32 consecutive cells of a narrow array.
template <class Device>
__global__ void __launch_bounds__(kUpdateThreads, 3)
    updateKernel(const __grid_constant__ Array<Device> a, const __grid_constant__ PulseWords p, int rowsPerWarp, bool flat,
                 uint64_t *coincidences) {
  __shared__ WarpEvents events[kWarps];
  __shared__ unsigned blockPulses;
  if (threadIdx.x == 0) blockPulses = 0;
  __syncthreads();
  constexpr int kSparseSlots = 4;
  const PulseLayout layout = *p.layout;
  const bool sparse = p.kind <= PulseKind::TwoPass && layout.slots <= kSparseSlots;
  const int warp = static_cast<int>(threadIdx.x >> 5);
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int64_t warpIndex = static_cast<int64_t>(blockIdx.y) * kWarps + warp;
  unsigned pulses = 0;
  for (int r = 0; r < rowsPerWarp; ++r) {
    ThreadCell<Device> c;
    if (flat) {
      c.index = (static_cast<int64_t>(blockIdx.x) * kWarps + warp) * 32 + lane;
      c.row = static_cast<int>(c.index / a.cols);
      c.col = static_cast<int>(c.index % a.cols);
      c.live = c.index < a.size();
    } else {
      c.row = static_cast<int>(warpIndex * rowsPerWarp + r);
      if (c.row >= a.rows) break;  // the whole warp
      c.col = static_cast<int>(blockIdx.x) * 32 + lane;
      c.index = c.row * a.cols + c.col;
      c.live = c.col < a.cols;
    }
    if (c.live) {
      c.w = a.weights[c.index];
      c.response = a.response(c.index);
    }
    if (sparse) {
      pulses += updateSparse(c, a, p, layout, events[warp]);
    } else if (c.live) {
      pulses += updateDense(c, a, p, layout);
    }
    if (c.live) a.weights[c.index] = c.w;
  }
  const unsigned warpPulses = __reduce_add_sync(0xffffffffu, pulses);
  if (lane == 0 && warpPulses) atomicAdd(&blockPulses, warpPulses);
  __syncthreads();
  if (threadIdx.x == 0 && blockPulses) {
    atomicAdd(reinterpret_cast<unsigned long long *>(coincidences), static_cast<unsigned long long>(blockPulses));
  }
}

template <class Device>
void update(const CellArray &array, const PulseWords &words, uint64_t *coincidences, int64_t, int64_t, void *stream) {
  constexpr int64_t kManyCells = int64_t{1} << 21;  // enough warps to fill the card even with several rows each
  const bool flat = array.cols < 32;
  const int rowsPerWarp = flat || array.size() < kManyCells ? 1 : 4;
  const int64_t rowsPerBlock = int64_t{kWarps} * rowsPerWarp;
  const int64_t blocksX = flat ? (array.size() + kUpdateThreads - 1) / kUpdateThreads : (array.cols + 31) / 32;
  const int64_t blocksY = flat ? 1 : (array.rows + rowsPerBlock - 1) / rowsPerBlock;
  const dim3 grid(static_cast<unsigned>(blocksX), static_cast<unsigned>(blocksY));
  updateKernel<Device><<<grid, kUpdateThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      Array<Device>::of(array), words, rowsPerWarp, flat, coincidences);
  RPU_CUDA(cudaGetLastError());
}

}  // namespace gpu
}  // namespace RPU
