#include <algorithm>
#include <cooperative_groups.h>

#include "cuda/core/launch.cuh"
#include "cuda/periphery/repeated_integers.cuh"
#include "cuda/periphery/repeated_product.cuh"

// Repeated reads of rows that left the range of the ADC.

namespace pulsora {
namespace {

// Elements of a row that a warp converts or finishes: the fewer, the more warps are busy.
constexpr int64_t kMostOfRow = 512;
constexpr int64_t kLeastOfRow = 128;
constexpr int kMostReads = kMostJobs<SumOfReads>;

/// Whether a row of any read has left the range of the ADC; all blocks agree, as long as no block
/// writes the states of the rows. The states of all reads are loaded at once.
template <int kThreads>
__device__ bool anyClipped(const SumOfReads *reads, int count) {
  int any = 0;
#pragma unroll 4
  for (int k = 0; k < count; ++k) {
    const auto &[r, added] = reads[k];
    for (int64_t i = threadIdx.x; i < r.input.in.rows; i += kThreads) {
      any |= r.input.state.clipped[i];
      if (added.isThere()) any |= added.read.input.state.clipped[i];
    }
  }
  return __syncthreads_or(any) != 0;
}

/// Calls use(k, place) for the places [0, sizeOf(k)) of every read; the warps of the grid take them
/// in turn.
template <class Repeats, class Size, class Use>
__device__ void forEachPlace(int count, const Size &sizeOf, const Use &use) {
  const int64_t warps = static_cast<int64_t>(gridDim.x) * (Repeats::kThreads / 32);
  int64_t place = static_cast<int64_t>(threadIdx.x / 32) * gridDim.x + blockIdx.x;
  for (int k = 0; k < count; ++k) {
    const int64_t all = sizeOf(k);
    for (; place < all; place += warps) use(k, place);
    place -= all;
  }
}

/// Lists those of 32 rows that are to be read again, and prepares them; by a warp.
__device__ void listWanted(const PlainRead &r, const AddedRead &added, int64_t firstRow) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t i = firstRow + lane;
  const bool own = i < r.input.in.rows && isWanted(r, i);
  const bool others = i < r.input.in.rows && isWanted(added, i);
  const uint32_t wanted = __ballot_sync(0xFFFFFFFFU, own || others);
  if (wanted == 0) return;
  int32_t entry = 0;
  if (lane == 0) entry = atomicAdd(r.count, __popc(wanted));
  entry = __shfl_sync(0xFFFFFFFFU, entry, 0) + __popc(wanted & ((1U << lane) - 1));
  if (own || others) r.list[entry] = static_cast<int32_t>(i);
  if (own) NextRead{r.input.state}(i);
  if (!others) return;
  NextRead{added.read.input.state}(i);
  for (int64_t k = 0; k < added.read.input.in.cols; ++k)
    ConvertInput{added.read.input}.convert(i, k);
}

constexpr int kAtOnce = 4;  // elements that a lane works on
using Places = int64_t[kAtOnce];
using Values = float[kAtOnce];

/// load(places, values), make(places, values) and store(j, value) for the elements [begin, end) of
/// a row; by a warp, whose lanes load their next elements meanwhile.
template <class Load, class Make, class Store>
__device__ void forPart(int64_t begin, int64_t end, const Load &load, const Make &make,
                        const Store &store) {
  constexpr int kStep = 32 * kAtOnce;
  Places places;
  Values next;
  const auto ask = [&](int64_t first) {
#pragma unroll
    for (int q = 0; q < kAtOnce; ++q) places[q] = pulsora::min(first + 32 * q, end - 1);
    load(places, next);
  };
  int64_t first = begin + threadIdx.x % 32;
  ask(first);
  for (; first < end; first += kStep) {
    Places now;
    Values value;
#pragma unroll
    for (int q = 0; q < kAtOnce; ++q) now[q] = places[q], value[q] = next[q];
    if (first + kStep < end) ask(first + kStep);
    make(now, value);
#pragma unroll
    for (int q = 0; q < kAtOnce; ++q)
      if (first + 32 * q < end) store(now[q], value[q]);
  }
}

/// Converts the inputs of a listed row with noise, in passes or with their sums; by a warp. A copy
/// of a stage takes memory of each thread, so that only these rare paths make one.
__device__ __noinline__ void convertWhole(const PlainRead &r, int64_t listed, int64_t entry) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  InputStage input = r.input;
  input.list = {r.list, listed};
  convertRow<32>(input, entry, lane);
  if (!input.sums && !input.squares) return;
  __syncwarp();
  if (lane == 0) sumConverted(input, entry);
}

/// Converts the inputs [begin, end) of a row four at a time; by a warp, whose lanes load all of
/// theirs at once.
__device__ void convertQuads(const InputStage &s, const VectorView<const float> &row, float scale,
                             int64_t entry, int64_t begin, int64_t end) {
  constexpr int kQuads = kMostOfRow / 4 / 32;
  const int64_t first = begin + threadIdx.x % 32 * 4;
  float4 four[kQuads];
#pragma unroll
  for (int q = 0; q < kQuads; ++q)
    four[q] = *reinterpret_cast<const float4 *>(row.data + pulsora::min(first + 128 * q, end - 4));
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    const int64_t j = first + 128 * q;
    if (j >= end) return;
    float value[4] = {four[q].x, four[q].y, four[q].z, four[q].w};
#pragma unroll
    for (float &v : value) v = convertedInput(s.converter, v, scale, 0.0f, 0.0f);
    if (s.bytes.data) {
      s.bytes.putFour(entry, j, value);
    } else {
      *reinterpret_cast<float4 *>(s.converted + entry * row.size + j) =
          make_float4(value[0], value[1], value[2], value[3]);
    }
  }
}

/// Converts the inputs [begin, end) of a listed row, or with the first ones all of them; by a warp.
/// Where there are bytes, whose ends are 0 since the first read, nobody reads floats.
__device__ void convertListed(const PlainRead &r, int64_t listed, int64_t entry, int64_t begin,
                              int64_t end) {
  const InputStage &input = r.input;
  if (input.passes != 1 || input.sums || input.squares || input.converter.noise > 0.0f ||
      input.converter.dac.stochastic) {
    if (begin == 0) convertWhole(r, listed, entry);
    return;
  }
  const VectorView<const float> row = input.in.row(r.list[entry]);
  const float scale = input.state.scale[r.list[entry]];
  if (areQuads(input, row)) {
    convertQuads(input, row, scale, entry, begin, end);
    return;
  }
  forPart(
      begin, end,
      [&](const Places &places, Values &values) {
#pragma unroll
        for (int q = 0; q < kAtOnce; ++q) values[q] = row[places[q]];
      },
      [&](const Places &, Values &values) {
#pragma unroll
        for (float &v : values) v = convertedInput(input.converter, v, scale, 0.0f, 0.0f);
      },
      [&](int64_t j, float value) {
        if (input.bytes.data) {
          input.bytes.put(entry, j, value);
        } else {
          input.converted[entry * row.size + j] = value;
        }
      });
}

/// Makes the outputs [begin, end) of a listed row that need sums of inputs, or that have an
/// adapter's added; by a warp.
__device__ __noinline__ void finishWhole(const PlainRead &r, const AddedRead &added,
                                         const IntegerSums &sums, int64_t listed, int64_t entry,
                                         int64_t begin, int64_t end) {
  const int64_t lines = r.output.out.cols;
  const int64_t row = r.list[entry];
  OutputStage output = r.output;
  output.list = {r.list, listed};
  for (int64_t line = begin + threadIdx.x % 32; line < end; line += 32) {
    if (sums.parts > 1) JoinParts{sums, listed * lines}(entry * lines + line);
    if (r.input.sums || r.input.squares) {
      FinishOutput{output}.finish(entry, line);
    } else {
      output.out(row, line) = finishLine(output, added, row, line, r.sums[entry * lines + line]);
    }
  }
}

/// Replaces sums of a row by its readings. Returns whether one of them leaves the range of the ADC.
__device__ bool readTogether(const OutputStage &s, int64_t row, const Places &lines, int32_t round,
                             Values &values) {
  uint32_t clipped = 0;
  const auto take = [&](int q, const Reading &reading) {
    values[q] = reading.value;
    clipped |= reading.clipped;
  };
  if (s.hasEffects || s.converter.adc.stochastic) {
#pragma unroll
    for (int q = 0; q < kAtOnce; ++q) take(q, drawnReading(s, row, lines[q], values[q], round));
    return clipped != 0;
  }
  // No branch between the elements, so that the draws of all are under way at once.
  OutputConverter converter = s.converter;
  converter.adc.stochastic = false;  // now known to the compiler
  const uint64_t sample = s.draws.firstSample + static_cast<uint64_t>(row);
  Values z = {};
  if (s.noisy) {
#pragma unroll
    for (int q = 0; q < kAtOnce; ++q)
      z[q] = normalOfSample(s.draws.key, s.draws.noise, static_cast<uint64_t>(lines[q]), sample,
                            drawIndex(round, 0));
  }
#pragma unroll
  for (int q = 0; q < kAtOnce; ++q)
    take(q, digitised(converter, values[q], s.lineNoise[lines[q]], z[q], 0.0f));
  return clipped != 0;
}

/// Makes the outputs [begin, end) of a listed row from its sums; by a warp.
__device__ void finishListed(const PlainRead &r, const AddedRead &added, const IntegerSums &sums,
                             int64_t listed, int64_t entry, int64_t begin, int64_t end) {
  if (r.input.sums || r.input.squares || added.isThere()) {
    finishWhole(r, added, sums, listed, entry, begin, end);
    return;
  }
  const OutputStage &output = r.output;
  const int64_t row = r.list[entry];
  const int64_t size = listed * output.out.cols;
  const int64_t first = entry * output.out.cols;
  const int32_t round = output.state.round[row];
  const float unit = output.state.scale[row] * output.outScale;
  bool clipped = false;
  forPart(
      begin, end,
      [&](const Places &places, Values &values) {
        if (sums.parts == 1) {
#pragma unroll
          for (int q = 0; q < kAtOnce; ++q) values[q] = sums.sums[first + places[q]];
          return;
        }
        int64_t total[kAtOnce] = {};
        const int64_t *part = sums.partial + first;
        for (int64_t p = 0; p < sums.parts; ++p, part += size) {
#pragma unroll
          for (int q = 0; q < kAtOnce; ++q) total[q] += part[places[q]];
        }
#pragma unroll
        for (int q = 0; q < kAtOnce; ++q) values[q] = valueOf(total[q], sums.unit);
      },
      [&](const Places &lines, Values &values) {
        clipped |= readTogether(output, row, lines, round, values);
#pragma unroll
        for (float &v : values) v *= unit;
      },
      [&](int64_t line, float value) { output.out(row, line) = value; });
  if (clipped) output.state.clipped[row] = 1;
}

/// Reads rows again, round by round, as long as a row leaves the range of the ADC; by all blocks,
/// which work on all reads at once.
template <class Repeats>
__device__ void repeatReads(const SumOfReads *reads, int count) {
  __shared__ int32_t listed[kMostReads];
  __shared__ int32_t parts[kMostReads];
  const ListedRows rows{reads, count, listed, parts};
  const auto grid = cooperative_groups::this_grid();
  const int me = static_cast<int>(threadIdx.x);
  const auto clearCounts = [&] {
    if (blockIdx.x == 0 && me < count) *reads[me].read.count = 0;
  };
  // use(read, entry of its list, begin, end) for all parts of all listed rows, which have
  // sizeOf(read) elements.
  const auto forEachPart = [&](const auto &sizeOf, const auto &use) {
    int64_t all = 0;
    for (int k = 0; k < count; ++k) all += listed[k] * sizeOf(reads[k].read);
    int64_t part = kMostOfRow;
    while (part > kLeastOfRow && all < part * gridDim.x * (Repeats::kThreads / 32)) part /= 2;
    const auto partsOfRow = [&](int k) { return (sizeOf(reads[k].read) + part - 1) / part; };
    forEachPlace<Repeats>(
        count, [&](int k) { return partsOfRow(k) * listed[k]; },
        [&](int k, int64_t place) {
          const int64_t entry = place / partsOfRow(k);
          const int64_t begin = (place - entry * partsOfRow(k)) * part;
          use(k, entry, begin, pulsora::min(begin + part, sizeOf(reads[k].read)));
        });
  };
  clearCounts();
  for (;;) {
    grid.sync();
    forEachPlace<Repeats>(
        count, [&](int k) { return (reads[k].read.input.in.rows + 31) / 32; },
        [&](int k, int64_t place) { listWanted(reads[k].read, reads[k].added, 32 * place); });
    grid.sync();
    if (me < count) listed[me] = *reads[me].read.count;
    if (__syncthreads_or(me < count && listed[me] > 0 ? 1 : 0) == 0) return;
    if (me < count) parts[me] = Repeats::partsOf(rows, me);
    forEachPart([](const PlainRead &r) { return r.input.in.cols; },
                [&](int k, int64_t entry, int64_t begin, int64_t end) {
                  convertListed(reads[k].read, listed[k], entry, begin, end);
                });
    grid.sync();
    clearCounts();  // which all blocks have taken
    Repeats::multiply(rows);
    grid.sync();
    forEachPart([](const PlainRead &r) { return r.output.out.cols; },
                [&](int k, int64_t entry, int64_t begin, int64_t end) {
                  const PlainRead &r = reads[k].read;
                  finishListed(r, reads[k].added, Repeats::sumsOf(r, listed[k], parts[k]),
                               listed[k], entry, begin, end);
                });
  }
}

/// Bound management in one launch, so that the host need not know whether a row leaves the range of
/// the ADC. Usually no row of any read does, and every block returns at once.
template <class Repeats, int kJobs>
__global__ void __launch_bounds__(Repeats::kThreads, Repeats::kBlocks)
    repeatKernel(const __grid_constant__ Jobs<SumOfReads, kJobs> jobs) {
  awaitEarlier();
  const int count = kJobs == 1 ? 1 : static_cast<int>(jobs.count);
  if (anyClipped<Repeats::kThreads>(jobs.each, count)) repeatReads<Repeats>(jobs.each, count);
}

/// The blocks of a launch: as many as the GPU holds at once.
template <class Repeats>
unsigned blocksOf(int device) {
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    PULSORA_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
    return value;
  };
  constexpr int kOwnBytes = 1024;  // that a block takes beside its dynamic memory; or fewer
  int blocks = Repeats::kBlocks;
  if constexpr (Repeats::kSharedBytes > 0) {
    const int bytes = static_cast<int>(Repeats::kSharedBytes) + kOwnBytes +
                      attribute(cudaDevAttrReservedSharedMemoryPerBlock);
    const int fit = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor) / bytes;
    blocks = std::max(std::min(blocks, fit), 1);
  }
  return static_cast<unsigned>(attribute(cudaDevAttrMultiProcessorCount) * blocks);
}

template <class Repeats>
void repeat(const Context &context, const SumOfReads &reads) {
  constexpr JobKernel<SumOfReads> kernel = {&repeatKernel<Repeats, 1>,
                                            &repeatKernel<Repeats, kMostReads>};
  if constexpr (Repeats::kSharedBytes > 0) letShare(kernel, Repeats::kSharedBytes);
  launchJobTogether(context.stream, kernel, blocksOf<Repeats>(context.device), Repeats::kThreads,
                    Repeats::kSharedBytes, reads);
}

}  // namespace

void cudaRepeatReads(const Context &context, const PlainRead &read, const AddedRead &added) {
  const CudaScope scope(context.device);
  const SumOfReads reads{read, added};
  if (read.integers.exist()) {
    withBlockSize(
        context.device, read.input.bytes, read.input.in.rows, read.weights.rows,
        [&](auto type) { repeat<IntegerRepeats<typename decltype(type)::Type>>(context, reads); });
  } else {
    repeat<FloatRepeats>(context, reads);
  }
}

}  // namespace pulsora
