#pragma once

#include "array/program_cells.h"
#include "cuda/array/launch_arguments.h"
#include "cuda/array/pulsed_array.cuh"
#include "cuda/core/await.cuh"

// Program and verify on a GPU. Cells differ in the rounds that they need, and in the pulses of a
// round: threads that stay with their cells would wait for the worst cell of their warp. So a block
// sorts its cells before each round by the steps that they take one by one, and its warps take
// neighbours of this order.

namespace pulsora {
namespace gpu {

/// Whether a cell takes n >= 1 pulses one by one, and not in closed form.
template <class Device>
__device__ bool areOneByOne(float w, int n, bool up, const typename Device::Response &r,
                            const typename Device::Params &p) {
  if constexpr (kHasClosedForm<Device>) {
    if (n == 1) return true;
    const PulseSum sum = pulseSum(static_cast<float>(n), p);
    return !closedFormHolds(w, Device::pulses(w, sum, up, r, p), r, p);
  }
  return true;
}

/// The cells of a block between rounds, in shared memory.
struct ProgrammedCells {
  static constexpr int kBins = 12;  // of steps, by powers of two
  static constexpr int kSums = 6;
  static constexpr uint16_t kDone = 0xFFFF;

  ProgramState states[kProgramCells];
  int pulses[kProgramCells];       // of the coming round
  uint16_t places[kProgramCells];  // bin and number within it, or kDone
  uint16_t order[kProgramCells];   // cells that get pulses, those with most steps first
  unsigned counts[kBins];          // of cells, by bin
  unsigned starts[kBins];          // of each bin in `order`
  unsigned total;                  // of cells in `order`
  unsigned next;                   // that no warp has taken yet
  unsigned long long sums[kSums];  // of ProgramCounts, and of pulses
  unsigned most;                   // pulses of a cell
};

/// The sum over the lanes of a warp, in lane 0.
__device__ inline uint64_t warpSumOf64(uint64_t value) {
#pragma unroll
  for (int other = 16; other > 0; other /= 2) value += __shfl_down_sync(0xFFFFFFFFU, value, other);
  return value;
}

/// Carries out the rounds of a program for cells first ... first + count - 1, by a whole block.
template <class Device>
struct BlockProgram {
  const Array<Device> &array;
  const ProgramCell<Device> &work;
  ProgrammedCells &cells;
  int64_t first;
  int count;
  int64_t firstRow;
  int64_t firstCol;

  /// Place of a cell of the block in the array.
  __device__ void locate(int c, int64_t &row, int64_t &col) const {
    row = firstRow;
    col = firstCol + c;
    if (col < array.cols) return;
    const int64_t down = col / array.cols;
    row += down;
    col -= down * array.cols;
  }

  /// Reads the cells, and decides the pulses of the first round.
  __device__ void begin() const {
    for (int base = 0; base < count; base += kProgramThreads) {
      const int c = base + static_cast<int>(threadIdx.x);
      int bin = -1;
      if (c < count) {
        int64_t row = 0;
        int64_t col = 0;
        locate(c, row, col);
        const ProgramState state = work.begin(array, first + c, row, col);
        cells.states[c] = state;
        if (work.program.rounds > 0 && !work.isDone(state))
          bin = plan(c, state, array.response(first + c), col, 0);
      }
      file(c, bin);
    }
  }

  /// Orders the cells by the steps of the coming round; returns the number of those with pulses.
  __device__ unsigned sort() const {
    __syncthreads();
    if (threadIdx.x < 32) {
      constexpr int kBins = ProgrammedCells::kBins;
      const int lane = static_cast<int>(threadIdx.x);
      const int bin = kBins - 1 - lane;
      const unsigned size = bin >= 0 ? cells.counts[bin] : 0U;
      unsigned end = size;
#pragma unroll
      for (int back = 1; back < 32; back *= 2) {
        const unsigned before = __shfl_up_sync(0xFFFFFFFFU, end, back);
        if (lane >= back) end += before;
      }
      if (bin >= 0) {
        cells.starts[bin] = end - size;
        cells.counts[bin] = 0;
      }
      if (lane == 31) {
        cells.total = end;
        cells.next = 0;
      }
    }
    __syncthreads();
    const unsigned total = cells.total;
    if (total == 0) return 0;
    for (int c = static_cast<int>(threadIdx.x); c < count; c += kProgramThreads) {
      const unsigned place = cells.places[c];
      if (place == ProgrammedCells::kDone) continue;
      cells.order[cells.starts[place / kProgramCells] + place % kProgramCells] =
          static_cast<uint16_t>(c);
    }
    __syncthreads();
    return total;
  }

  /// A round for the `total` cells of the order, and the decision about the next one. Returns the
  /// number of cells that this thread has treated, and adds their pulses to `sent`.
  __device__ unsigned pulse(unsigned total, int round, uint64_t &sent) const {
    unsigned treated = 0;
    for (;;) {
      unsigned k = 0;
      if (threadIdx.x % 32 == 0) k = atomicAdd(&cells.next, 32U);
      k = __shfl_sync(0xFFFFFFFFU, k, 0);
      if (k >= total) return treated;
      k += threadIdx.x % 32;
      int c = 0;
      int bin = -1;
      if (k < total) {
        c = cells.order[k];
        bin = pulseCell(c, round, sent);
        ++treated;
      } else {
        c = count;
      }
      file(c, bin);
    }
  }

  /// Writes the cells and counts them; `treated` and `pulses` are this thread's rounds.
  __device__ void end(unsigned treated, uint64_t pulses) const {
    ProgramCounts mine{};
    unsigned most = 0;
    for (int c = static_cast<int>(threadIdx.x); c < count; c += kProgramThreads) {
      const ProgramState state = cells.states[c];
      work.end(array, first + c, state, mine);
      most = state.sent > most ? state.sent : most;
    }
    const uint64_t sums[] = {mine.cells,           mine.outside,
                             mine.reads + treated, static_cast<uint64_t>(mine.error),
                             mine.square,          pulses};
#pragma unroll
    for (int k = 0; k < ProgrammedCells::kSums; ++k) {
      const uint64_t sum = warpSumOf64(sums[k]);
      if (threadIdx.x % 32 == 0) atomicAdd(&cells.sums[k], static_cast<unsigned long long>(sum));
    }
    if (most > 0) atomicMax(&cells.most, most);
  }

 private:
  /// Decides the pulses of a round; returns the bin of their steps, or -1 for none.
  __device__ int plan(int c, const ProgramState &state, const typename Device::Response &r,
                      int64_t col, int round) const {
    const int pulses = work.pulses(array, r, state, col, round);
    cells.pulses[c] = pulses;
    if (pulses == 0) return -1;
    const int n = pulses > 0 ? pulses : -pulses;
    if (!areOneByOne<Device>(state.weight, n, pulses > 0, r, array.params)) return 0;
    const int bin = 31 - __clz(n);
    return bin < ProgrammedCells::kBins ? bin : ProgrammedCells::kBins - 1;
  }

  __device__ int pulseCell(int c, int round, uint64_t &sent) const {
    const int64_t i = first + c;
    int64_t row = 0;
    int64_t col = 0;
    locate(c, row, col);
    const typename Device::Response r = array.response(i);
    ProgramState state = cells.states[c];
    const int pulses = cells.pulses[c];
    const uint64_t sample = work.sampleOf(round);
    const auto cell = static_cast<uint64_t>(i);
    const float z = normalOfSample(array.key, Purpose::CycleNoise, cell, sample);
    float xi = 0.0f;
    if (work.program.writeNoise > 0.0f)
      xi = normalOfSample(array.key, Purpose::WriteNoise, cell, sample + 1);
    work.take(array, r, i, pulses, round, z, xi, state);
    work.raiseLongest(array, row, col, round, pulses);
    sent += static_cast<uint64_t>(pulses > 0 ? pulses : -pulses);
    cells.states[c] = state;
    if (round + 1 == work.program.rounds || work.isDone(state)) return -1;
    return plan(c, state, r, col, round + 1);
  }

  /// Puts cell c, if it is one of the block, into a bin; for all lanes of a warp.
  __device__ void file(int c, int bin) const {
    const unsigned lane = threadIdx.x % 32;
    const unsigned alike = __match_any_sync(0xFFFFFFFFU, bin);
    const int leader = __ffs(static_cast<int>(alike)) - 1;
    unsigned at = 0;
    if (static_cast<int>(lane) == leader && bin >= 0)
      at = atomicAdd(&cells.counts[bin], static_cast<unsigned>(__popc(alike)));
    at = __shfl_sync(0xFFFFFFFFU, at, leader);
    if (c >= count) return;
    at += static_cast<unsigned>(__popc(alike & ((1U << lane) - 1U)));
    cells.places[c] = bin < 0
                          ? ProgrammedCells::kDone
                          : static_cast<uint16_t>(static_cast<unsigned>(bin) * kProgramCells + at);
  }
};

/// Carries out a CellProgram for the cells [begin, end), and adds the number of pulses to `*sent`.
template <class Device>
__global__ void __launch_bounds__(kProgramThreads, 6)
    programKernel(Array<Device> array, ProgramCell<Device> work, uint64_t *sent, int64_t begin,
                  int64_t end) {
  awaitEarlier();
  __shared__ ProgrammedCells cells;
  if (threadIdx.x < ProgrammedCells::kBins) cells.counts[threadIdx.x] = 0;
  if (threadIdx.x < ProgrammedCells::kSums) cells.sums[threadIdx.x] = 0;
  if (threadIdx.x == 0) cells.most = 0;
  __syncthreads();
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kProgramCells;
  for (int64_t first = begin + static_cast<int64_t>(blockIdx.x) * kProgramCells; first < end;
       first += stride) {
    const int64_t rest = end - first;
    const int64_t row = first / array.cols;
    const int count = static_cast<int>(rest < kProgramCells ? rest : kProgramCells);
    const BlockProgram<Device> block{
        array, work, cells, first, count, row, first - row * array.cols};
    block.begin();
    uint64_t pulses = 0;
    unsigned treated = 0;
    unsigned total = block.sort();
    for (int round = 0; total > 0; ++round) {
      treated += block.pulse(total, round, pulses);
      total = block.sort();
    }
    block.end(treated, pulses);
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  ProgramCounts all{};
  all.cells = cells.sums[0];
  all.outside = cells.sums[1];
  all.reads = cells.sums[2];
  all.error = static_cast<int64_t>(cells.sums[3]);
  all.square = cells.sums[4];
  all.addTo(work.program.counts);
  if (cells.most > 0) atomicRaiseTo(&work.program.counts->most, static_cast<uint64_t>(cells.most));
  if (cells.sums[5] > 0) atomicAddTo(sent, static_cast<uint64_t>(cells.sums[5]));
}

}  // namespace gpu
}  // namespace pulsora
