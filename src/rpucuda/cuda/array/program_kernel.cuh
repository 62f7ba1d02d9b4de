#pragma once

#include "array/program_cells.h"
#include "cuda/array/launch_arguments.h"
#include "cuda/array/pulsed_array.cuh"
#include "cuda/core/await.cuh"

// Program and verify on a GPU. Cells differ in the rounds that they need, and in the pulses of a
// round: threads that stay with their cells would wait for the worst cell of their warp. So a block
// keeps many cells under way in slots of shared memory. It goes through all of them in steps of one
// round, or of some pulses of a long one, in the order of the work that is left, so that the
// threads of a warp have about the same; then slots of finished cells are filled again. All blocks
// take their cells from one queue, in batches.

namespace pulsora {
namespace gpu {

/// The cells of a block that are under way, in shared memory.
struct ProgramSlots {
  static constexpr int kPart = 32;  // most pulses one by one in a step
  static constexpr int kBins = 6;   // of such pulses, by powers of two
  static constexpr int kSums = 6;
  static constexpr uint16_t kNone = 0xFFFF;

  ProgramState states[kProgramSlots];
  uint32_t batches[kProgramSlots];  // and in them, places of the cells
  int pulses[kProgramSlots];        // of the round; negative: down
  int taken[kProgramSlots];         // of these
  uint8_t inBatch[kProgramSlots];
  uint8_t rounds[kProgramSlots];   // that have ended
  uint16_t places[kProgramSlots];  // bin and number within it, or kNone for an empty slot
  uint16_t order[kProgramSlots];   // slots with cells, those with most work first
  uint16_t empty[kProgramSlots];   // slots without
  unsigned counts[kBins];          // of slots, by bin
  unsigned starts[kBins];          // of each bin in `order`
  unsigned total;                  // of slots in `order`
  unsigned next;                   // that no warp has taken yet
  unsigned vacant;                 // number of empty slots
  unsigned long long batch;        // the latest that was begun
  bool begins;                     // whether `batch` begins now
  unsigned long long sums[kSums];  // of ProgramCounts, and of pulses
  unsigned most;                   // pulses of a cell
};

/// The sum over the lanes of a warp, in lane 0.
__device__ inline uint64_t warpSumOf64(uint64_t value) {
#pragma unroll
  for (int other = 16; other > 0; other /= 2) value += __shfl_down_sync(0xFFFFFFFFU, value, other);
  return value;
}

/// Carries out a program for the cells that a block takes of [begin, begin + count).
template <class Device>
struct BlockProgram {
  static constexpr int kEach = 2;  // cells of a thread in a batch
  static constexpr unsigned kBatch = kEach * kProgramThreads;
  static_assert(kBatch <= 256 && kBatch <= kProgramSlots, "places in a batch are bytes");

  const Array<Device> &array;
  const ProgramCell<Device> &work;
  ProgramSlots &slots;
  int64_t begin;
  int64_t count;
  ProgramCounts mine;  // of this thread
  uint64_t sent;
  unsigned most;
  bool more;  // whether the queue has further batches; known to thread 0

  __device__ void run() {
    clear();
    for (;;) {
      fill();
      const unsigned total = sort();
      if (total == 0) break;  // then the queue is empty too
      step(total);
    }
    add();
  }

 private:
  __device__ void clear() const {
    for (int s = static_cast<int>(threadIdx.x); s < kProgramSlots; s += kProgramThreads) {
      slots.places[s] = ProgramSlots::kNone;
      slots.empty[s] = static_cast<uint16_t>(s);
    }
    if (threadIdx.x < ProgramSlots::kBins) slots.counts[threadIdx.x] = 0;
    if (threadIdx.x < ProgramSlots::kSums) slots.sums[threadIdx.x] = 0;
    if (threadIdx.x == 0) {
      slots.vacant = kProgramSlots;
      slots.most = 0;
    }
  }

  /// Begins batches of cells while there are slots for them.
  __device__ void fill() {
    for (;;) {
      __syncthreads();
      if (threadIdx.x == 0) slots.begins = takeBatch();
      __syncthreads();
      if (!slots.begins) return;
      const auto first = static_cast<int64_t>(slots.batch) * kBatch + threadIdx.x;
      ProgramState states[kEach];
      int64_t cols[kEach];
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        const int64_t cell = first + e * kProgramThreads;
        if (cell >= count) continue;
        const int64_t i = begin + cell;
        const int64_t row = i / array.cols;
        cols[e] = i - row * array.cols;
        states[e] = work.begin(array, i, row, cols[e]);
      }
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        const int64_t cell = first + e * kProgramThreads;
        int slot = kProgramSlots;
        int bin = -1;
        if (cell < count) beginCell(cell, states[e], cols[e], slot, bin);
        file(slot, bin);
      }
    }
  }

  /// Takes a batch from the queue if there is room; by thread 0. Returns whether it has cells.
  __device__ bool takeBatch() {
    if (!more || slots.vacant < kBatch) return false;
    slots.batch =
        atomicAdd(reinterpret_cast<unsigned long long *>(&work.program.counts->batches), 1ULL);
    more = static_cast<int64_t>(slots.batch) * kBatch < count;
    return more;
  }

  __device__ void beginCell(int64_t cell, const ProgramState &state, int64_t col, int &slot,
                            int &bin) {
    const int64_t i = begin + cell;
    if (work.program.rounds > 0 && !work.isDone(state, 0)) {
      const typename Device::Response r = array.response(i);
      const bool up = (state.error() > 0.0f) != work.isTurned(col);
      const int n = work.pulses(array, r, state, up, 0);
      if (n > 0) {
        slot = slots.empty[atomicSub(&slots.vacant, 1U) - 1];
        slots.batches[slot] = static_cast<uint32_t>(cell / kBatch);
        slots.inBatch[slot] = static_cast<uint8_t>(cell % kBatch);
        bin = plan(slot, state, r, n, up, 0);
        return;
      }
    }
    work.end(array, i, state, mine);
  }

  /// Orders the slots by their work; returns the number of those with cells.
  __device__ unsigned sort() const {
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned total = 0;
      for (int bin = ProgramSlots::kBins - 1; bin >= 0; --bin) {
        slots.starts[bin] = total;
        total += slots.counts[bin];
        slots.counts[bin] = 0;
      }
      slots.total = total;
      slots.next = 0;
    }
    __syncthreads();
    const unsigned total = slots.total;
    if (total == 0) return 0;
    for (int s = static_cast<int>(threadIdx.x); s < kProgramSlots; s += kProgramThreads) {
      const unsigned place = slots.places[s];
      if (place == ProgramSlots::kNone) continue;
      slots.order[slots.starts[place / kProgramSlots] + place % kProgramSlots] =
          static_cast<uint16_t>(s);
    }
    __syncthreads();
    return total;
  }

  /// A step of all cells in the order.
  __device__ void step(unsigned total) {
    for (;;) {
      unsigned k = 0;
      if (threadIdx.x % 32 == 0) k = atomicAdd(&slots.next, 32U);
      k = __shfl_sync(0xFFFFFFFFU, k, 0);
      if (k >= total) return;
      k += threadIdx.x % 32;
      int slot = kProgramSlots;
      int bin = -1;
      if (k < total) {
        slot = slots.order[k];
        bin = stepCell(slot);
      }
      file(slot, bin);
    }
  }

  /// A step of one cell; returns the bin of its next one, or -1 if it is finished.
  __device__ int stepCell(int slot) {
    const int64_t i =
        begin + static_cast<int64_t>(slots.batches[slot]) * kBatch + slots.inBatch[slot];
    const typename Device::Response r = array.response(i);
    ProgramState state = slots.states[slot];
    const int pulses = slots.pulses[slot];
    const int before = slots.taken[slot];
    const int round = slots.rounds[slot];
    const bool up = pulses > 0;
    const int n = up ? pulses : -pulses;
    const uint64_t sample = work.sampleOf(round);
    const auto cell = static_cast<uint64_t>(i);
    float z = 0.0f;
    if (before == 0) z = normalOfSample(array.key, Purpose::CycleNoise, cell, sample);
    const int taken = applyPart<Device>(state.weight, n, before, ProgramSlots::kPart, up, r,
                                        array.params, z, array.key, cell, sample);
    if (taken < n) {
      slots.states[slot].weight = state.weight;
      slots.taken[slot] = taken;
      return binOf(n - taken);
    }
    float xi = 0.0f;
    if (work.program.writeNoise > 0.0f)
      xi = normalOfSample(array.key, Purpose::WriteNoise, cell, sample + 1);
    work.read(i, n, xi, state);
    const int64_t row = i / array.cols;
    const int64_t col = i - row * array.cols;
    work.raiseLongest(array, row, col, round, n);
    ++mine.reads;
    sent += static_cast<uint64_t>(n);
    if (round + 1 < work.program.rounds && !work.isDone(state, round + 1)) {
      const bool nextUp = (state.error() > 0.0f) != work.isTurned(col);
      const int next = work.pulses(array, r, state, nextUp, round + 1);
      if (next > 0) return plan(slot, state, r, next, nextUp, round + 1);
    }
    work.end(array, i, state, mine);
    most = state.sent > most ? state.sent : most;
    slots.empty[atomicAdd(&slots.vacant, 1U)] = static_cast<uint16_t>(slot);
    return -1;
  }

  /// Keeps a round to come; returns its bin.
  __device__ int plan(int slot, const ProgramState &state, const typename Device::Response &r,
                      int n, bool up, int round) const {
    slots.states[slot] = state;
    slots.pulses[slot] = up ? n : -n;
    slots.taken[slot] = 0;
    slots.rounds[slot] = static_cast<uint8_t>(round);
    return areOneByOne<Device>(state.weight, n, up, r, array.params) ? binOf(n) : 0;
  }
  __device__ static int binOf(int pulses) {
    const int bin = 31 - __clz(pulses);
    return bin < ProgramSlots::kBins ? bin : ProgramSlots::kBins - 1;
  }

  /// Puts a slot, if it is one, into a bin, or notes that it is empty; for all lanes of a warp.
  __device__ void file(int slot, int bin) const {
    const unsigned lane = threadIdx.x % 32;
    const unsigned alike = __match_any_sync(0xFFFFFFFFU, bin);
    const int leader = __ffs(static_cast<int>(alike)) - 1;
    unsigned at = 0;
    if (static_cast<int>(lane) == leader && bin >= 0)
      at = atomicAdd(&slots.counts[bin], static_cast<unsigned>(__popc(alike)));
    at = __shfl_sync(0xFFFFFFFFU, at, leader);
    if (slot == kProgramSlots) return;
    at += static_cast<unsigned>(__popc(alike & ((1U << lane) - 1U)));
    const unsigned place = static_cast<unsigned>(bin) * kProgramSlots + at;
    slots.places[slot] = bin < 0 ? ProgramSlots::kNone : static_cast<uint16_t>(place);
  }

  /// Adds what all threads have counted to the program's counts; thread 0 returns the pulses.
  __device__ void add() {
    const uint64_t sums[] = {
        mine.cells, mine.outside, mine.reads, static_cast<uint64_t>(mine.error), mine.square, sent};
#pragma unroll
    for (int k = 0; k < ProgramSlots::kSums; ++k) {
      const uint64_t sum = warpSumOf64(sums[k]);
      if (threadIdx.x % 32 == 0) atomicAdd(&slots.sums[k], static_cast<unsigned long long>(sum));
    }
    if (most > 0) atomicMax(&slots.most, most);
    __syncthreads();
    mine = {slots.sums[0], slots.sums[1],
            slots.sums[2], 0,
            slots.most,    static_cast<int64_t>(slots.sums[3]),
            slots.sums[4], 0};
    sent = slots.sums[5];
  }
};

/// Carries out a CellProgram for the cells [begin, end), and adds the number of pulses to `*sent`.
template <class Device>
__global__ void __launch_bounds__(kProgramThreads, 6)
    programKernel(Array<Device> array, ProgramCell<Device> work, uint64_t *sent, int64_t begin,
                  int64_t end) {
  awaitEarlier();
  __shared__ ProgramSlots slots;
  if (work.program.due && *work.program.due == 0) return;
  BlockProgram<Device> block{array, work, slots, begin, end - begin, {}, 0, 0, true};
  block.run();
  if (threadIdx.x > 0) return;
  block.mine.addTo(work.program.counts);
  if (block.mine.most > 0) atomicRaiseTo(&work.program.counts->most, block.mine.most);
  if (block.sent > 0) atomicAddTo(sent, block.sent);
}

}  // namespace gpu
}  // namespace pulsora
