#pragma once

#include "cuda/array/pulsed_array.cuh"

// Pulse trains of up to 31 slots, most of whose samples have pulses in most cells. A block stages
// the words of its lines for 64 samples in shared memory. A thread takes its cell through eight
// samples at a time, whose normals come from one Philox block:
//
//   as long as no bound can be reached in the next four, by closed forms alone, without a test;
//
//   from the first four in which one could, the cell is deferred, and finished by the whole rule in
//   warps of deferred cells. Finished in place, it would hold up its warp.
//
// Models without closed forms use the whole rule in place.

namespace pulsora {
namespace gpu {

constexpr int kStaged = 64;  // samples staged at a time: eight blocks of normals

/// A cell that is deferred from some sample of a stage on.
struct DeferredInStage {
  float w;
  uint16_t cell;    // row within the block << 8 | column within the block
  uint16_t sample;  // within the stage
};

/// Slots of one sample a word, 0 outside the mini-batch; signs of eight samples a word.
struct Stage {
  alignas(16) uint32_t x[kStaged / 4][32][4];
  alignas(16) uint32_t d[kStagedRows][kStaged + 4];  // padded against bank conflicts
  uint32_t xSigns[kStaged / 8][32];
  uint32_t dSigns[kStaged / 8][kStagedRows];
  PulseSum sums[32];
  DeferredInStage deferred[32 * kStagedRows];
  int deferredCount;
};

/// Eight samples of a line.
struct Words8 {
  uint32_t v[8];
};

__device__ inline Words8 words8(const uint32_t *first, const uint32_t *second) {
  const uint4 a = *reinterpret_cast<const uint4 *>(first);
  const uint4 b = *reinterpret_cast<const uint4 *>(second);
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}
__device__ inline Words8 xWords(const Stage &stage, int x, int block) {
  return words8(stage.x[2 * block][x], stage.x[2 * block + 1][x]);
}
__device__ inline Words8 dWords(const Stage &stage, int d, int block) {
  return words8(&stage.d[d][8 * block], &stage.d[d][8 * block + 4]);
}

/// Stages eight samples of one line; `words` and `signs` are its column in the mini-batch's planes.
/// put(k, word) stores sample k; returns the signs. All words are requested before any is used.
template <class Put>
__device__ __forceinline__ uint32_t stage8(const uint32_t *words, const uint32_t *signs,
                                           int64_t lines, const PulseLayout &layout, int64_t first,
                                           int64_t samples, const Put &put) {
  const uint32_t mask = slotMask(layout.slots);
  const auto begin = static_cast<int>(first);
  const auto end = static_cast<int>(samples);
  const auto lastWord = static_cast<int>(layout.words(samples)) - 1;
  const SlotPlace place = SlotPlace::of(layout, ::max(begin, 0));
  auto word = static_cast<int>(place.word);
  int shift = place.shift;
  uint32_t slots[8];
  uint32_t negative = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const bool there = begin + k >= 0 && begin + k < end;
    const int64_t at = ::min(word, lastWord) * lines;
    slots[k] = words[at] >> shift & (there ? mask : 0u);
    negative |= (signs[at] >> shift & (there ? 1u : 0u)) << k;
    const int after = shift + (begin + k >= 0 ? layout.slots : 0);
    const bool inWord = after < layout.samplesPerWord * layout.slots;
    shift = inWord ? after : 0;
    word += inWord ? 0 : 1;
  }
#pragma unroll
  for (int k = 0; k < 8; ++k) put(k, slots[k]);
  return negative;
}

/// The samples of a stage for one cell by the whole rule, from `first` on.
template <class Device>
__device__ __forceinline__ float finishCell(const Array<Device> &a, const Stage &stage,
                                            int64_t index, int x, int d, float w, int first,
                                            int blocks, uint64_t firstSample, unsigned &pulses) {
  const auto cell = static_cast<uint64_t>(index);
  const typename Device::Response response = a.response(index);
#pragma unroll 1
  for (int s = first; s < 8 * blocks;) {
    const Philox4 random =
        draw(a.rounds, Purpose::CycleNoise, cell, (firstSample + static_cast<uint64_t>(s)) >> 3);
    const uint32_t differ = stage.xSigns[s >> 3][x] ^ stage.dSigns[s >> 3][d];
#pragma unroll 1
    for (int end = (s | 7) + 1; s < end; s += 2) {
      const NormalPair z = normalPair16(wordOf(random, static_cast<uint32_t>(s >> 1) & 3u));
#pragma unroll 1
      for (int half = 0; half < 2; ++half) {
        const int n = __popc(stage.x[s >> 2][x][(s & 3) + half] & stage.d[d][s + half]);
        pulses += static_cast<unsigned>(n);
        w = applyPulses<Device>(w, stage.sums[n], differ >> ((s & 7) + half) & 1u, response,
                                a.params, half ? z.z1 : z.z0, a.rounds, cell,
                                firstSample + static_cast<uint64_t>(s + half));
      }
    }
  }
  return w;
}

/// The samples of a stage for one cell by closed forms. Stops before the first four samples in
/// which closed forms might not hold: returns their place in the stage, or kStaged. The global
/// number of the first sample of a stage is a multiple of eight.
template <class Device>
__device__ __forceinline__ int closedForms(const Array<Device> &a,
                                           const typename Device::Params &params,
                                           const Stage &stage, int64_t index, int x, int d,
                                           float &w, int blocks, int slots, uint64_t firstSample,
                                           unsigned &pulses) {
  const typename Device::Response response = Device::response(a.cell(a.stored(index)), params);
  if (!closedFormsUpTo<Device>(slots, response, params)) return 0;
  SafeRange safe = SafeRange::of(Device::reach(response, params), response, params);
  // Keeps the compiler from recomputing `safe` in the loop.
  asm volatile("" : "+f"(safe.perPulse), "+f"(safe.low), "+f"(safe.high));
  uint64_t group = firstSample >> 3;
#pragma unroll 1
  for (int block = 0; block < blocks; ++block, ++group) {
    const Words8 xs = xWords(stage, x, block);
    const Words8 ds = dWords(stage, d, block);
    const uint32_t differ = stage.xSigns[block][x] ^ stage.dSigns[block][d];
    int n[8];
#pragma unroll
    for (int s = 0; s < 8; ++s) n[s] = __popc(xs.v[s] & ds.v[s]);
    const Philox4 random = draw(a.rounds, Purpose::CycleNoise, static_cast<uint64_t>(index), group);
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      if (pair % 2 == 0) {
        const int first = 2 * pair;
        const int total = n[first] + n[first + 1] + n[first + 2] + n[first + 3];
        if (!safe.holds(w, static_cast<float>(total))) return 8 * block + first;
        pulses += static_cast<unsigned>(total);
      }
      const NormalPair z = normalPair16(random.v[pair]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int s = 2 * pair + half;
        const bool up = (differ & (1u << s)) != 0;
        const Moments m = Device::pulses(w, stage.sums[n[s]], up, response, params);
        const float moved = pulsora::fma(m.sd, half ? z.z1 : z.z0, m.mean);
        w = kNoPulseIsExact<Device> || n[s] > 0 ? moved : w;
      }
    }
  }
  return kStaged;
}

template <class Params, class = void>
struct HasMultNoise : std::false_type {};
template <class Params>
struct HasMultNoise<Params, std::void_t<decltype(Params::mult_noise)>> : std::true_type {};

/// Calls work(params) with a kind of noise that the compiler knows: a branch in each sample would
/// break up the loop.
template <class Params, class Work>
__device__ __forceinline__ auto withKnownNoise(const Params &params, const Work &work) {
  if constexpr (HasMultNoise<Params>::value) {
    Params known = params;
    known.mult_noise = true;
    if (params.mult_noise) return work(known);
    known.mult_noise = false;
    return work(known);
  } else {
    return work(params);
  }
}

/// Dense pulse trains of a whole block.
template <class Device>
__device__ unsigned updateDense(const Array<Device> &a, const PulseWords &p,
                                const PulseLayout &layout, int64_t samples, Partition part,
                                Stage &stage) {
  const int64_t firstCol = part.flat ? 0 : static_cast<int64_t>(part.blockX) * 32;
  const int64_t firstRow = part.flat
                               ? static_cast<int64_t>(part.blockX) * kUpdateThreads / a.cols
                               : static_cast<int64_t>(part.blockY) * part.rowsPerWarp * kWarps;
  const int rows = part.flat ? kStagedRows : part.rowsPerWarp * kWarps;
  const int me = static_cast<int>(threadIdx.x);
  const int lane = me & 31;
  if (me < 32) {
    stage.sums[me] = me ? pulseSum(static_cast<float>(me), a.params) : PulseSum{0.0f, 0.0f};
  }
  unsigned pulses = 0;
  for (int64_t start = -static_cast<int64_t>(p.firstSample & 7); start < samples;
       start += kStaged) {
    const uint64_t firstSample = p.firstSample + static_cast<uint64_t>(start);
    const int64_t rest = samples - start;
    const int blocks = static_cast<int>(rest < kStaged ? (rest + 7) / 8 : kStaged / 8);
    __syncthreads();
    if (me == 0) stage.deferredCount = 0;
    for (int group = me / 32; group < blocks; group += kWarps) {
      const int64_t first = start + 8 * group;
      if (firstCol + lane < a.cols) {
        const int64_t col = firstCol + lane;
        stage.xSigns[group][lane] =
            stage8(p.xBits + col, p.xSigns + col, p.xSize, layout, first, samples,
                   [&](int k, uint32_t slots) { stage.x[2 * group + k / 4][lane][k % 4] = slots; });
      }
      if (lane < rows && firstRow + lane < a.rows) {
        const int64_t row = firstRow + lane;
        stage.dSigns[group][lane] =
            stage8(p.dBits + row, p.dSigns + row, p.dSize, layout, first, samples,
                   [&](int k, uint32_t slots) { stage.d[lane][8 * group + k] = slots; });
      }
    }
    __syncthreads();
    for (int r = 0; r < part.rowsPerWarp; ++r) {
      const ThreadCell c = threadCell(a, part, r);
      if (!c.live) continue;
      const int x = c.col - static_cast<int>(firstCol);
      const int d = c.row - static_cast<int>(firstRow);
      float w = a.weights[c.index];
      if constexpr (kHasClosedForm<Device>) {
        const int stopped = withKnownNoise(a.params, [&](const typename Device::Params &params) {
          return closedForms(a, params, stage, c.index, x, d, w, blocks, layout.slots, firstSample,
                             pulses);
        });
        a.weights[c.index] = w;
        if (stopped < kStaged) {
          stage.deferred[atomicAdd(&stage.deferredCount, 1)] = {
              w, static_cast<uint16_t>(d << 8 | x), static_cast<uint16_t>(stopped)};
        }
      } else {
        a.weights[c.index] = finishCell(a, stage, c.index, x, d, w, 0, blocks, firstSample, pulses);
      }
    }
    if constexpr (kHasClosedForm<Device>) {
      __syncthreads();
      for (int i = me; i < stage.deferredCount; i += kUpdateThreads) {
        const DeferredInStage left = stage.deferred[i];
        const int x = left.cell & 255;
        const int d = left.cell >> 8;
        const int64_t index = (firstRow + d) * a.cols + firstCol + x;
        a.weights[index] =
            finishCell(a, stage, index, x, d, left.w, left.sample, blocks, firstSample, pulses);
      }
    }
  }
  return pulses;
}

}  // namespace gpu
}  // namespace pulsora
