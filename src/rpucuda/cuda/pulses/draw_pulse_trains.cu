#include "core/check.h"
#include "cuda/core/launch.cuh"
#include "pulses/draw_pulse_trains.h"

// Pulse trains on the GPU. Words are written whole, so nothing needs to be zeroed first. A thread
// takes one line of a quad: four samples that share a block of random words.

namespace pulsora {
namespace {

constexpr int kLines = 32;
constexpr int kQuads = 9;  // a word holds at most 32 samples, which lie in at most nine quads

struct Sides {
  PulseTrainSide side[kMostSides];
  unsigned blocksOfSide;
};

struct LineSample {
  uint32_t threshold;
  uint32_t negative;
  int length;
};

__device__ LineSample lineSample(const PulseTrainSide &side, int64_t line, int64_t s) {
  const PulseTrainScale t = side.scales[s];
  const float value = side.values(s, line);
  float rounding = 0.0f;
  if (side.stochasticRounding) {
    rounding = uniform(draw(side.key, side.rounding, static_cast<uint64_t>(line),
                            side.firstSample + static_cast<uint64_t>(s))
                           .v[0]);
  }
  const float p = pulseProbability(value, side.isX ? t.xScale : t.dScale, side.step,
                                   side.stochasticRounding, rounding);
  const bool negative = ((bitCast<uint32_t>(value) >> 31) != 0) != side.negate;
  return {pulseThreshold(p), negative && t.length > 0 ? 0xffffffffu : 0u, t.length};
}

// Slots [from, from + 32) of the samples [begin, end) of one quad; `quad` is the mini-batch index
// of the quad's sample 0, which may lie before the mini-batch.
__device__ void drawQuad(const PulseTrainSide &side, int64_t line, int64_t quad, int begin, int end,
                         int from, uint32_t (&bits)[4], uint32_t (&signs)[4]) {
  LineSample of[4];
  int longest = 0;
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    bits[q] = 0;
    if (q < begin || q >= end) {
      of[q] = {0, 0, 0};
    } else {
      of[q] = lineSample(side, line, quad + q);
    }
    signs[q] = of[q].negative;
    longest = of[q].length > longest ? of[q].length : longest;
  }
  const int last = longest < from + 32 ? longest : from + 32;
  const uint64_t sample = side.firstSample + static_cast<uint64_t>(quad + begin);
  for (int slot = from; slot < last; ++slot) {
    const Philox4 r = slotWords(side.key, side.pulses, static_cast<uint64_t>(line), sample,
                                side.firstSlot + static_cast<uint32_t>(slot));
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const uint32_t fires = slot < of[q].length ? slotFires(r.v[q], of[q].threshold) : 0u;
      bits[q] |= fires << (slot - from);
    }
  }
}

/// Words of several samples, for kLines lines: as many words at once as the block has threads for
/// their quads, from `firstWord` on. The threads of a line and word share its quads.
__device__ void drawSharedWords(const PulseTrainSide &side, const PulseLayout &layout, int64_t line,
                                int64_t firstWord, int quadsOfWord) {
  __shared__ uint32_t allBits[kQuads][kLines];
  __shared__ uint32_t allSigns[kQuads][kLines];
  allBits[threadIdx.y][threadIdx.x] = allSigns[threadIdx.y][threadIdx.x] = 0;
  __syncthreads();
  const int samples = static_cast<int>(side.samples());
  const int which = static_cast<int>(threadIdx.y) / quadsOfWord;
  const int64_t word = firstWord + which;
  const int64_t first = word * layout.samplesPerWord;
  const int64_t end = pulsora::min(first + layout.samplesPerWord, int64_t{samples});
  const int phase = static_cast<int>((side.firstSample + static_cast<uint64_t>(first)) & 3);
  const int64_t quad =
      first - phase + 4 * static_cast<int64_t>(static_cast<int>(threadIdx.y) % quadsOfWord);
  const bool mine = line < side.values.cols && (which + 1) * quadsOfWord <= kQuads && first < end;
  if (mine && quad < end) {
    uint32_t bits[4];
    uint32_t signs[4];
    const int begin = quad < first ? static_cast<int>(first - quad) : 0;
    const int stop = end - quad < 4 ? static_cast<int>(end - quad) : 4;
    drawQuad(side, line, quad, begin, stop, 0, bits, signs);
    uint32_t myBits = 0;
    uint32_t mySigns = 0;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      if (q < begin || q >= stop) continue;
      const int shift = static_cast<int>(quad + q - first) * layout.slots;
      myBits |= bits[q] << shift;
      mySigns |= (signs[q] & slotMask(layout.slots)) << shift;
    }
    atomicOr(&allBits[which][threadIdx.x], myBits);
    atomicOr(&allSigns[which][threadIdx.x], mySigns);
  }
  __syncthreads();
  if (mine && static_cast<int>(threadIdx.y) % quadsOfWord == 0) {
    side.bits[word * side.values.cols + line] = allBits[which][threadIdx.x];
    if (side.signs) side.signs[word * side.values.cols + line] = allSigns[which][threadIdx.x];
  }
  __syncthreads();
}

__device__ void drawOwnWords(const PulseTrainSide &side, const PulseLayout &layout, int64_t line,
                             int64_t unit) {
  const int64_t samples = side.samples();
  const int64_t quad = unit * 4 - static_cast<int64_t>(side.firstSample & 3);
  if (quad >= samples) return;
  const int begin = quad < 0 ? static_cast<int>(-quad) : 0;
  const int stop = samples - quad < 4 ? static_cast<int>(samples - quad) : 4;
  for (int part = 0; part < layout.wordsPerSample; ++part) {
    uint32_t bits[4];
    uint32_t signs[4];
    drawQuad(side, line, quad, begin, stop, part * 32, bits, signs);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      if (q < begin || q >= stop) continue;
      const int64_t at = ((quad + q) * layout.wordsPerSample + part) * side.values.cols + line;
      side.bits[at] = bits[q];
      if (side.signs) side.signs[at] = signs[q] & slotMask(layout.slots);
    }
  }
}

// blockIdx.x is the side and its lines, blockIdx.y the words or, if samples have words of their
// own, kQuads quads of samples.
template <int kJobs>
__global__ void __launch_bounds__(kLines *kQuads, 3)
    drawTrainsKernel(const __grid_constant__ Jobs<Sides, kJobs> jobs) {
  awaitEarlier();
  const unsigned across = jobs.ofBlock().blocksOfSide;
  const PulseTrainSide &side = jobs.ofBlock().side[blockIdx.x / across];
  const int64_t line = static_cast<int64_t>(blockIdx.x % across) * kLines + threadIdx.x;
  if (line - threadIdx.x >= side.values.cols) return;  // sides have different numbers of lines
  const PulseLayout layout = *side.layout;
  if (layout.samplesPerWord > 1) {
    const int quadsOfWord = (layout.samplesPerWord + 6) / 4;  // whatever sample a word begins with
    const int atOnce = kQuads / quadsOfWord;
    const int64_t words = layout.words(side.samples());
    for (int64_t word = int64_t{blockIdx.y} * atOnce; word < words; word += gridDim.y * atOnce)
      drawSharedWords(side, layout, line, word, quadsOfWord);
  } else if (line < side.values.cols) {
    const int64_t quads = side.samples() / 4 + 2;
    for (int64_t quad = static_cast<int64_t>(blockIdx.y) * kQuads + threadIdx.y; quad < quads;
         quad += static_cast<int64_t>(gridDim.y) * kQuads) {
      drawOwnWords(side, layout, line, quad);
    }
  }
}
constexpr JobKernel<Sides> kDrawTrainsKernel = {&drawTrainsKernel<1>,
                                                &drawTrainsKernel<kMostJobs<Sides>>};

}  // namespace

void cudaDrawPulseTrains(const Context &context, const PulseTrainSide *sides, int count) {
  Sides all{};
  int64_t lines = 0;
  for (int i = 0; i < count; ++i) {
    all.side[i] = sides[i];
    lines = sides[i].values.cols > lines ? sides[i].values.cols : lines;
  }
  // Only the GPU knows the number of words, which is often one or two. Blocks stride over the
  // words; many lines, or many tiles, are blocks enough. The thousands of samples of a convolution
  // have more words.
  constexpr int64_t kBlocks = 2048;
  const int64_t usual = BatchedLaunches::areKept() ? 4 : 16;
  const int64_t most = pulsora::max(usual, sides[0].values.rows / 256);
  const int64_t across = (lines + kLines - 1) / kLines;
  const int64_t words = sides[0].values.rows / 2 + 1;
  const int64_t wanted = pulsora::max(kBlocks / (across * count), int64_t{2});
  all.blocksOfSide = static_cast<unsigned>(across);
  const dim3 grid(static_cast<unsigned>(across * count),
                  static_cast<unsigned>(pulsora::min(pulsora::min(words, wanted), most)));
  const CudaScope scope(context.device);
  launchJob(context.stream, kDrawTrainsKernel, grid, dim3(kLines, kQuads), 0, all);
}

}  // namespace pulsora
