#pragma once

#include "core/half.h"
#include "cuda/check.cuh"
#include "devices/pulse_rule.h"
#include "pulsed_kernels.h"

// The pulsed update on the GPU. A thread holds one cell in registers and walks through the
// mini-batch; the steps are those of devices/pulse_rule.h. Three paths, chosen by what the pulses
// are, which the kernel learns on the device:
//
//   sparse: trains of one slot; a warp lists its coincidences and makes normals for them alone.
//
//   dense: trains of up to 31 slots; words are staged in shared memory, with their signs.
//
//   plain: everything else.

namespace RPU {
namespace gpu {

constexpr int kUpdateThreads = 256;
constexpr int kWarps = kUpdateThreads / 32;
// The compiler keeps to 64 registers for this many: hiding latency is worth some spills.
constexpr int kBlocksPerProcessor = 4;
constexpr int kEventsPerWarp = 256;
constexpr int kStaged = 64;  // samples staged at a time: eight blocks of normals
constexpr int kStagedRows = 32;

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
    return {a.rows,  a.cols, a.weights,
            a.cells, a.key,  *static_cast<const typename Device::Params *>(a.params)};
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
  bool live;  // threads beyond the array take part in steps of the whole warp or block only
};

// --- plain
// ----------------------------------------------------------------------------------------------------------

/// Signed coincidences of one cell in sample s; negative steps down.
__device__ inline int countPlainly(const PulseWords &p, const PulseLayout &layout, int64_t s,
                                   int row, int col) {
  if (p.kind > PulseKind::TwoPass) {
    const float length = static_cast<float>(p.trainLength[s]);
    const float scale =
        p.kind == PulseKind::MeanCount ? (length > 0.0f ? 1.0f / length : 0.0f) : length;
    return -static_cast<int>(
        RPU::rint(p.xLevels[s * p.xSize + col] * p.dLevels[s * p.dSize + row] * scale));
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
__device__ unsigned updatePlain(const ThreadCell<Device> &c, const Array<Device> &a,
                                const PulseWords &p, const PulseLayout &layout) {
  const auto cell = static_cast<uint64_t>(c.index);
  const typename Device::Response response = a.response(c.index);
  float w = a.weights[c.index];
  unsigned pulses = 0;
  for (int64_t s = 0; s < p.samples; ++s) {
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

// --- dense
// ----------------------------------------------------------------------------------------------------------

constexpr uint32_t kSignBit = 0x80000000u;

/// One sample of one line: its slots, and its sign in the top bit; 0 outside the mini-batch.
__device__ inline uint32_t stagedWord(const uint32_t *bits, const uint32_t *signs,
                                      const PulseLayout &layout, int64_t lines, int64_t line,
                                      int64_t s, int64_t samples) {
  if (s < 0 || s >= samples) return 0u;
  const int64_t word = layout.samplesPerWord > 1 ? s / layout.samplesPerWord : s;
  const int shift = static_cast<int>(s - word * layout.samplesPerWord) * layout.slots;
  const int64_t at = word * lines + line;
  const uint32_t negative = (signs[at] >> shift) & 1u ? kSignBit : 0u;
  return ((bits[at] >> shift) & slotMask(layout.slots)) | negative;
}

/// A cell that must take some sample pulse by pulse, from that sample on.
struct SetAside {
  float w;
  uint16_t cell;    // row within the block << 8 | column within the block
  uint16_t sample;  // within the stage
};

struct Stage {
  uint32_t x[kStaged][32];
  uint32_t d[kStaged][kStagedRows];
  SetAside aside[32 * kStagedRows];
  int asideCount;
};

__device__ inline int stagedCount(const Stage &stage, int s, int x, int d, bool &up) {
  const uint32_t xWord = stage.x[s][x];
  const uint32_t dWord = stage.d[s][d];
  up = static_cast<int>(xWord ^ dWord) < 0;
  return __popc(xWord & dWord & ~kSignBit);
}

/// The rest of a stage for one cell, by the whole rule.
template <class Device>
__device__ __noinline__ float finishCell(const Array<Device> &a, const Stage &stage, int64_t index,
                                         int x, int d, float w, int s, uint64_t firstSample) {
  const auto cell = static_cast<uint64_t>(index);
  const typename Device::Response response = a.response(index);
  Philox4 random{};
  for (bool fresh = true; s < kStaged; ++s, fresh = false) {
    if (fresh || (s & 7) == 0) {
      random =
          draw(a.key, Purpose::CycleNoise, cell, (firstSample + static_cast<uint64_t>(s)) >> 3);
    }
    bool up = false;
    const int n = stagedCount(stage, s, x, d, up);
    if (n == 0) continue;
    const NormalPair z = normalPair16(wordOf(random, static_cast<uint32_t>(s & 7) >> 1));
    w = applyPulses<Device>(w, n, up, response, a.params, (s & 1) ? z.z1 : z.z0, a.key, cell,
                            firstSample + static_cast<uint64_t>(s));
  }
  return w;
}

/// The samples of a stage for one cell. A model with closed forms stops at the first sample where
/// they do not hold: returns its place, with the weight before it, or kStaged. The first sample of
/// a stage is a multiple of eight globally.
template <class Device>
__device__ __forceinline__ int stagedSamples(const Array<Device> &a, const Stage &stage,
                                             int64_t index, int x, int d, float &w, int blocks,
                                             uint64_t firstSample, unsigned &pulses) {
  const auto cell = static_cast<uint64_t>(index);
  const typename Device::Response response = a.response(index);
  int stopped = kStaged;
  bool active = true;  // closed forms have held so far
#pragma unroll 1
  for (int block = 0; block < blocks; ++block) {
    Philox4 random =
        draw(a.key, Purpose::CycleNoise, cell, (firstSample >> 3) + static_cast<uint64_t>(block));
#pragma unroll 1
    for (int s = 8 * block; s < 8 * block + 8; s += 2) {
      const NormalPair z = normalPair16(random.v[0]);
      random.v[0] = random.v[1];
      random.v[1] = random.v[2];
      random.v[2] = random.v[3];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        bool up = false;
        const int n = stagedCount(stage, s + half, x, d, up);
        const float xi = half ? z.z1 : z.z0;
        pulses += static_cast<unsigned>(n);
        if constexpr (kHasClosedForm<Device>) {
          const Moments m = Device::pulses(w, static_cast<float>(n), up, response, a.params);
          const bool fails = (n > 1) & !closedFormHolds(w, m, response, a.params);
          stopped = fails & active ? s + half : stopped;
          active = active & !fails;
          const float several = RPU::fma(m.sd, xi, m.mean);
          const float moved = n > 1 ? several : Device::pulse(w, up, response, a.params, xi);
          w = active & (n > 0) ? clipWeight(moved, response) : w;
        } else {
          w = applyPulses<Device>(w, n, up, response, a.params, xi, a.key, cell,
                                  firstSample + static_cast<uint64_t>(s + half));
        }
      }
    }
  }
  return stopped;
}

// --- sparse
// ---------------------------------------------------------------------------------------------------------

/// The coincidences of a warp's cells, with their normals.
struct WarpEvents {
  float z[kEventsPerWarp];
  uint16_t code[kEventsPerWarp];  // lane << 8 | sample
};

/// Two words (64 samples) at a time; the warp lists its coincidences and makes their normals with
/// every lane busy, then each lane applies its own in order. The loop in which each lane draws when
/// it needs to is far slower: its lanes wait for one another.
template <class Device>
__device__ __forceinline__ unsigned updateSparse(const ThreadCell<Device> &c,
                                                 const Array<Device> &a, const PulseWords &p,
                                                 WarpEvents &events) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const auto warpCell = static_cast<uint64_t>(c.index - lane);
  typename Device::Response response;
  float w = 0.0f;
  if (c.live) {
    response = a.response(c.index);
    w = a.weights[c.index];
  }
  unsigned pulses = 0;
  for (int64_t start = 0; start < p.samples; start += 64) {
    const uint64_t first = p.firstSample + static_cast<uint64_t>(start);
    uint64_t both = 0;
    uint64_t differ = 0;
    if (c.live) {
      const int64_t x = (start >> 5) * p.xSize + c.col;
      const int64_t d = (start >> 5) * p.dSize + c.row;
      both = p.xBits[x] & p.dBits[d];
      differ = p.xSigns[x] ^ p.dSigns[d];
      if (start + 32 < p.samples) {
        both |= static_cast<uint64_t>(p.xBits[x + p.xSize] & p.dBits[d + p.dSize]) << 32;
        differ |= static_cast<uint64_t>(p.xSigns[x + p.xSize] ^ p.dSigns[d + p.dSize]) << 32;
      }
    }
    const int mine = __popcll(both);
    pulses += static_cast<unsigned>(mine);
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
      int e = at;
      for (uint64_t rest = both; rest; rest &= rest - 1) {
        events.code[e++] =
            static_cast<uint16_t>(lane << 8 | (__ffsll(static_cast<long long>(rest)) - 1));
      }
      __syncwarp();
      for (e = lane; e < total; e += 32) {
        const uint32_t code = events.code[e];
        events.z[e] = normalOfSample(a.key, Purpose::CycleNoise, warpCell + (code >> 8),
                                     first + (code & 255u));
      }
      __syncwarp();
    }
    for (; both; both &= both - 1) {
      const int sample = __ffsll(static_cast<long long>(both)) - 1;
      const float z =
          listed ? events.z[at++]
                 : normalOfSample(a.key, Purpose::CycleNoise, static_cast<uint64_t>(c.index),
                                  first + static_cast<uint64_t>(sample));
      w = onePulse<Device>(w, (differ >> sample) & 1u, response, a.params, z);
    }
    __syncwarp();
  }
  if (c.live) a.weights[c.index] = w;
  return pulses;
}

// --- launch
// ---------------------------------------------------------------------------------------------------------

/// Cell of this thread in row `r` of its warp. A warp takes 32 neighbouring columns and
/// `rowsPerWarp` rows one after another, so that a block shares the words of its lines; with
/// `flat`, the block takes consecutive cells of a narrow array.
template <class Device>
__device__ inline ThreadCell<Device> threadCell(const Array<Device> &a, int rowsPerWarp, bool flat,
                                                int r) {
  const int warp = static_cast<int>(threadIdx.x >> 5);
  const int lane = static_cast<int>(threadIdx.x & 31);
  ThreadCell<Device> c;
  if (flat) {
    c.index = static_cast<int64_t>(blockIdx.x) * kUpdateThreads + threadIdx.x;
    c.row = static_cast<int>(c.index / a.cols);
    c.col = static_cast<int>(c.index % a.cols);
    c.live = c.index < a.size();
  } else {
    c.row = (static_cast<int>(blockIdx.y) * rowsPerWarp + r) * kWarps + warp;
    c.col = static_cast<int>(blockIdx.x) * 32 + lane;
    c.index = c.row * a.cols + c.col;
    c.live = c.row < a.rows && c.col < a.cols;
  }
  return c;
}

/// Dense trains of a whole block. Cells that come near a bound leave the lanes that use closed
/// forms, and are finished by full warps afterwards: a warp that took them pulse by pulse where
/// they stand would make all its cells wait.
template <class Device>
__device__ unsigned updateDense(const Array<Device> &a, const PulseWords &p,
                                const PulseLayout &layout, int rowsPerWarp, bool flat,
                                Stage &stage) {
  const int64_t firstCol = flat ? 0 : static_cast<int64_t>(blockIdx.x) * 32;
  const int64_t firstRow = flat ? static_cast<int64_t>(blockIdx.x) * kUpdateThreads / a.cols
                                : static_cast<int64_t>(blockIdx.y) * rowsPerWarp * kWarps;
  const int rows = flat ? kStagedRows : rowsPerWarp * kWarps;
  unsigned pulses = 0;
  for (int64_t start = -static_cast<int64_t>(p.firstSample & 7); start < p.samples;
       start += kStaged) {
    const uint64_t firstSample = p.firstSample + static_cast<uint64_t>(start);
    const int64_t left = p.samples - start;
    const int blocks = static_cast<int>(left < kStaged ? (left + 7) / 8 : kStaged / 8);
    __syncthreads();
    if (threadIdx.x == 0) stage.asideCount = 0;
    for (int i = static_cast<int>(threadIdx.x); i < kStaged * 32; i += kUpdateThreads) {
      const int64_t col = firstCol + (i & 31);
      if (col < a.cols) {
        stage.x[i >> 5][i & 31] =
            stagedWord(p.xBits, p.xSigns, layout, p.xSize, col, start + (i >> 5), p.samples);
      }
    }
    for (int i = static_cast<int>(threadIdx.x); i < kStaged * kStagedRows; i += kUpdateThreads) {
      const int64_t row = firstRow + i % kStagedRows;
      if (i % kStagedRows < rows && row < a.rows) {
        stage.d[i / kStagedRows][i % kStagedRows] =
            stagedWord(p.dBits, p.dSigns, layout, p.dSize, row, start + i / kStagedRows, p.samples);
      }
    }
    __syncthreads();
    for (int r = 0; r < rowsPerWarp; ++r) {
      const ThreadCell<Device> c = threadCell(a, rowsPerWarp, flat, r);
      if (!c.live) continue;
      const int x = c.col - static_cast<int>(firstCol);
      const int d = c.row - static_cast<int>(firstRow);
      float w = a.weights[c.index];
      const int stopped = stagedSamples(a, stage, c.index, x, d, w, blocks, firstSample, pulses);
      a.weights[c.index] = w;
      if (stopped < kStaged) {
        stage.aside[atomicAdd(&stage.asideCount, 1)] = {w, static_cast<uint16_t>(d << 8 | x),
                                                        static_cast<uint16_t>(stopped)};
      }
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < stage.asideCount; i += kUpdateThreads) {
      const SetAside aside = stage.aside[i];
      const int x = aside.cell & 255;
      const int d = aside.cell >> 8;
      const int64_t index = (firstRow + d) * a.cols + firstCol + x;
      a.weights[index] = finishCell(a, stage, index, x, d, aside.w, aside.sample, firstSample);
    }
  }
  return pulses;
}

template <class Device>
__global__ void __launch_bounds__(kUpdateThreads, kBlocksPerProcessor)
    updateKernel(const __grid_constant__ Array<Device> a, const __grid_constant__ PulseWords p,
                 int rowsPerWarp, bool flat, uint64_t *coincidences) {
  __shared__ union {
    Stage stage;
    WarpEvents events[kWarps];
  } shared;
  __shared__ unsigned blockPulses;
  if (threadIdx.x == 0) blockPulses = 0;
  __syncthreads();
  const PulseLayout layout = *p.layout;
  const bool words = p.kind == PulseKind::Words;
  const bool staged =
      words && layout.slots <= 31 && (!flat || kUpdateThreads / a.cols + 2 <= kStagedRows);
  unsigned pulses = 0;
  if (words && layout.slots == 1) {
    for (int r = 0; r < rowsPerWarp; ++r) {
      pulses +=
          updateSparse(threadCell(a, rowsPerWarp, flat, r), a, p, shared.events[threadIdx.x >> 5]);
    }
  } else if (staged) {
    pulses = updateDense(a, p, layout, rowsPerWarp, flat, shared.stage);
  } else {
    for (int r = 0; r < rowsPerWarp; ++r) {
      const ThreadCell<Device> c = threadCell(a, rowsPerWarp, flat, r);
      if (c.live) pulses += updatePlain(c, a, p, layout);
    }
  }
  const unsigned warpPulses = __reduce_add_sync(0xffffffffu, pulses);
  if ((threadIdx.x & 31) == 0 && warpPulses) atomicAdd(&blockPulses, warpPulses);
  __syncthreads();
  if (threadIdx.x == 0 && blockPulses) {
    atomicAdd(reinterpret_cast<unsigned long long *>(coincidences),
              static_cast<unsigned long long>(blockPulses));
  }
}

template <class Device>
void update(const CellArray &array, const PulseWords &words, uint64_t *coincidences, int64_t,
            int64_t, void *stream) {
  constexpr int64_t kManyCells =
      int64_t{1} << 21;  // enough warps to fill the card even with several rows each
  const bool flat = array.cols < 32;
  const int rowsPerWarp = flat || array.size() < kManyCells ? 1 : kStagedRows / kWarps;
  const int64_t rowsPerBlock = int64_t{kWarps} * rowsPerWarp;
  const int64_t blocksX =
      flat ? (array.size() + kUpdateThreads - 1) / kUpdateThreads : (array.cols + 31) / 32;
  const int64_t blocksY = flat ? 1 : (array.rows + rowsPerBlock - 1) / rowsPerBlock;
  const dim3 grid(static_cast<unsigned>(blocksX), static_cast<unsigned>(blocksY));
  updateKernel<Device><<<grid, kUpdateThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      Array<Device>::of(array), words, rowsPerWarp, flat, coincidences);
  RPU_CUDA(cudaGetLastError());
}

}  // namespace gpu
}  // namespace RPU
