#include <cooperative_groups.h>

#include "cuda/core/launch.cuh"
#include "cuda/periphery/repeated_bytes.cuh"

// Repeated reads of rows that left the range of the ADC.

namespace pulsora {
namespace {

constexpr int kRepeatBlocksPerSm = 2;
constexpr int kRepeatWarps = kRepeatThreads / 32;
constexpr int64_t kPartOfRow = 512;  // elements of a row that a warp converts or finishes

/// Whether a row of any read has left the range of the ADC; all blocks agree, as long as no block
/// writes the states of the rows. The states of all reads are loaded at once.
__device__ bool anyClipped(const SumOfReads *reads, int count) {
  int any = 0;
#pragma unroll 4
  for (int k = 0; k < count; ++k) {
    const auto &[r, added] = reads[k];
    for (int64_t i = threadIdx.x; i < r.input.in.rows; i += kRepeatThreads) {
      any |= r.input.state.clipped[i];
      if (added.isThere()) any |= added.read.input.state.clipped[i];
    }
  }
  return __syncthreads_or(any) != 0;
}

/// Lists the rows to be read again and prepares them; by a single block.
__device__ void listWanted(const PlainRead &r, const AddedRead &added) {
  __shared__ int32_t count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < r.input.in.rows; i += kRepeatThreads) {
    const bool own = isWanted(r, i);
    const bool others = isWanted(added, i);
    if (!own && !others) continue;
    r.list[atomicAdd(&count, 1)] = static_cast<int32_t>(i);
    if (own) NextRead{r.input.state}(i);
    if (!others) continue;
    NextRead{added.read.input.state}(i);
    for (int64_t k = 0; k < added.read.input.in.cols; ++k)
      ConvertInput{added.read.input}.convert(i, k);
  }
  __syncthreads();
  if (threadIdx.x == 0) *r.count = count;
}

/// A bit for each of the reads that have a row to be read again; all blocks agree, as in
/// anyClipped().
__device__ uint32_t wantedReads(const SumOfReads *reads, int count) {
  __shared__ uint32_t wanted;
  if (threadIdx.x == 0) wanted = 0;
  __syncthreads();
  uint32_t mine = 0;
#pragma unroll 4
  for (int k = 0; k < count; ++k) {
    const auto &[r, added] = reads[k];
    for (int64_t i = threadIdx.x; i < r.input.in.rows; i += kRepeatThreads)
      mine |= isWanted(r, i) || isWanted(added, i) ? 1U << k : 0U;
  }
  if (mine != 0) atomicOr(&wanted, mine);
  __syncthreads();
  const uint32_t found = wanted;
  __syncthreads();  // nobody clears it before all have read it
  return found;
}

/// The rows that are read again, of all reads.
struct ListedRows {
  const SumOfReads *reads;
  int count;                                       // of the reads
  const int32_t (&listed)[kMostJobs<SumOfReads>];  // rows of each read; in shared memory

  /// use(read, entry of its list, first element) for all parts of all rows, which have
  /// sizeOf(read) elements; the warps of the grid take them in turn.
  template <class Size, class Use>
  __device__ void forEach(const Size &sizeOf, const Use &use) const {
    const int64_t warps = static_cast<int64_t>(gridDim.x) * kRepeatWarps;
    int64_t place = static_cast<int64_t>(threadIdx.x / 32) * gridDim.x + blockIdx.x;
    for (int k = 0; k < count; ++k) {
      const int64_t parts = (sizeOf(reads[k].read) + kPartOfRow - 1) / kPartOfRow;
      const int64_t all = parts * listed[k];
      for (; place < all; place += warps) use(reads[k], place / parts, place % parts * kPartOfRow);
      place -= all;
    }
  }
  /// The products of all reads, in larger pieces where these keep all blocks busy.
  __device__ void multiply() const {
    int64_t large = 0;
    for (int k = 0; k < count; ++k) {
      const int64_t lines = reads[k].read.weights.rows;
      large += isOnTensorCores(reads[k].read) ? bytePiecesOf<true>(listed[k], lines)
                                              : piecesOf<kLargePiece>(listed[k], lines);
    }
    large < gridDim.x ? multiplyPieces<false>() : multiplyPieces<true>();
  }

 private:
  __device__ static bool isOnTensorCores(const PlainRead &r) {
    return r.integers.exist() && r.weights.cols <= kMostByteDepth;
  }
  template <bool kMany>
  __device__ void multiplyPieces() const {
    constexpr int kSize = kMany ? kLargePiece : kSmallPiece;
    int64_t before = 0;  // pieces of the reads before
    for (int k = 0; k < count; ++k) {
      if (listed[k] == 0) continue;
      const PlainRead &r = reads[k].read;
      const int64_t rows = listed[k];
      if (isOnTensorCores(r)) {
        multiplyBytesTogether<kMany>(r, rows, before);
        before += bytePiecesOf<kMany>(rows, r.weights.rows);
        continue;
      }
      const auto inputs = rowMajor<const float>(r.input.converted, rows, r.input.in.cols);
      if (r.integers.exist()) {
        multiplyTogether<kSize>(IntegerProduct(r), inputs, r.weights, r.sums, before);
      } else {
        multiplyTogether<kSize>(FloatProduct(r), inputs, r.weights, r.sums, before);
      }
      before += piecesOf<kSize>(rows, r.weights.rows);
    }
  }
};

/// make(j, load(j)) for the elements of a part of a row, and store(j, result); by a warp, whose
/// lanes have four elements under way at once.
template <class Load, class Make, class Store>
__device__ void forPart(int64_t begin, int64_t size, const Load &load, const Make &make,
                        const Store &store) {
  constexpr int kAtOnce = 4;
  const int64_t end = pulsora::min(begin + kPartOfRow, size);
  for (int64_t first = begin + threadIdx.x % 32; first < end; first += 32 * kAtOnce) {
    float value[kAtOnce];
#pragma unroll
    for (int q = 0; q < kAtOnce; ++q) value[q] = load(pulsora::min(first + 32 * q, end - 1));
#pragma unroll
    for (int q = 0; q < kAtOnce; ++q)
      value[q] = make(pulsora::min(first + 32 * q, end - 1), value[q]);
#pragma unroll
    for (int q = 0; q < kAtOnce; ++q)
      if (first + 32 * q < end) store(first + 32 * q, value[q]);
  }
}

/// Converts the inputs of a listed row with noise, in passes or with their sums; by a warp. A copy
/// of a stage takes memory of each thread, so that only these rare paths make one.
__device__ __noinline__ void convertWhole(const PlainRead &r, int64_t entry) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  InputStage input = r.input;
  input.list = {r.list, *r.count};
  convertRow<32>(input, entry, lane);
  if (!input.sums && !input.squares) return;
  __syncwarp();
  if (lane == 0) sumConverted(input, entry);
}

/// Converts the inputs of a part of a listed row, or with the first part all of them; by a warp.
__device__ void convertListed(const PlainRead &r, int64_t entry, int64_t begin) {
  const InputStage &input = r.input;
  if (input.passes != 1 || input.sums || input.squares || input.converter.noise > 0.0f ||
      input.converter.dac.stochastic) {
    if (begin == 0) convertWhole(r, entry);
    return;
  }
  const VectorView<const float> row = input.in.row(r.list[entry]);
  const float scale = input.state.scale[r.list[entry]];
  float *converted = input.converted + entry * row.size;
  const LevelBytes bytes = input.bytes;  // whose ends are 0 since the first read
  forPart(
      begin, row.size, [&](int64_t j) { return row[j]; },
      [&](int64_t, float x) { return convertedInput(input.converter, x, scale, 0.0f, 0.0f); },
      [&](int64_t j, float value) {
        converted[j] = value;
        if (bytes.data) bytes.put(entry, j, value);
      });
}

/// Outputs of a part of a listed row that need sums of inputs, or that have an adapter's added.
__device__ __noinline__ void finishWhole(const PlainRead &r, const AddedRead &added, int64_t entry,
                                         int64_t begin) {
  const int64_t lines = r.output.out.cols;
  const int64_t end = pulsora::min(begin + kPartOfRow, lines);
  const int64_t row = r.list[entry];
  OutputStage output = r.output;
  output.list = {r.list, *r.count};
  for (int64_t line = begin + threadIdx.x % 32; line < end; line += 32) {
    if (r.input.sums || r.input.squares) {
      FinishOutput{output}.finish(entry, line);
    } else {
      output.out(row, line) = finishLine(output, added, row, line, r.sums[entry * lines + line]);
    }
  }
}

/// Makes the outputs of a part of a listed row from its sums; by a warp.
__device__ void finishListed(const PlainRead &r, const AddedRead &added, int64_t entry,
                             int64_t begin) {
  if (r.input.sums || r.input.squares || added.isThere()) {
    finishWhole(r, added, entry, begin);
    return;
  }
  const OutputStage &output = r.output;
  const int64_t row = r.list[entry];
  const float *sums = r.sums + entry * output.out.cols;
  const int32_t round = output.state.round[row];
  const float unit = output.state.scale[row] * output.outScale;
  bool clipped = false;
  forPart(
      begin, output.out.cols, [&](int64_t line) { return sums[line]; },
      [&](int64_t line, float sum) {
        const Reading reading = readingOf(output, row, line, sum, round);
        clipped |= reading.clipped != 0;
        return reading.value * unit;
      },
      [&](int64_t line, float value) { output.out(row, line) = value; });
  if (clipped) output.state.clipped[row] = 1;
}

/// Reads rows again, round by round, as long as a row leaves the range of the ADC; by all blocks,
/// which work on all reads at once.
__device__ void repeatReads(const SumOfReads *reads, int count) {
  const auto grid = cooperative_groups::this_grid();
  __shared__ int32_t listed[kMostJobs<SumOfReads>];
  const int me = static_cast<int>(threadIdx.x);
  while (const uint32_t wanted = wantedReads(reads, count)) {
    const auto isWantedRead = [&](int k) { return (wanted >> k & 1U) != 0; };
    grid.sync();
    for (int k = static_cast<int>(blockIdx.x); k < count; k += static_cast<int>(gridDim.x)) {
      if (isWantedRead(k)) listWanted(reads[k].read, reads[k].added);
    }
    grid.sync();
    if (me < count) listed[me] = isWantedRead(me) ? *reads[me].read.count : 0;
    __syncthreads();
    const ListedRows rows{reads, count, listed};
    rows.forEach([](const PlainRead &r) { return r.input.in.cols; },
                 [](const SumOfReads &each, int64_t entry, int64_t first) {
                   convertListed(each.read, entry, first);
                 });
    grid.sync();
    rows.multiply();
    grid.sync();
    rows.forEach([](const PlainRead &r) { return r.output.out.cols; },
                 [](const SumOfReads &each, int64_t entry, int64_t first) {
                   finishListed(each.read, each.added, entry, first);
                 });
    grid.sync();
  }
}

/// Bound management in one launch, so that the host need not know whether a row leaves the range of
/// the ADC. Usually no row of any read does, and every block returns at once.
template <int kJobs>
__global__ void __launch_bounds__(kRepeatThreads, kRepeatBlocksPerSm)
    repeatKernel(const __grid_constant__ Jobs<SumOfReads, kJobs> jobs) {
  awaitEarlier();
  const int count = kJobs == 1 ? 1 : static_cast<int>(jobs.count);
  if (anyClipped(jobs.each, count)) repeatReads(jobs.each, count);
}
constexpr JobKernel<SumOfReads> kRepeatKernel = {&repeatKernel<1>,
                                                 &repeatKernel<kMostJobs<SumOfReads>>};

}  // namespace

void cudaRepeatReads(const Context &context, const PlainRead &read, const AddedRead &added) {
  const CudaScope scope(context.device);
  int multiprocessors = 0;
  PULSORA_CUDA_CHECK(
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, context.device));
  launchJobTogether(context.stream, kRepeatKernel,
                    static_cast<unsigned>(multiprocessors * kRepeatBlocksPerSm), kRepeatThreads,
                    SumOfReads{read, added});
}

}  // namespace pulsora
