#include <cooperative_groups.h>

#include "cuda/core/launch.cuh"
#include "cuda/periphery/repeated_product.cuh"

// Repeated reads of rows that left the range of the ADC.

namespace pulsora {
namespace {

constexpr int kRepeatBlocksPerSm = 2;
constexpr int kRepeatWarps = kRepeatThreads / 32;

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

  /// use(read, entry of its list) for all rows; the warps of the grid take them in turn.
  template <class Use>
  __device__ void forEach(const Use &use) const {
    const int64_t warps = static_cast<int64_t>(gridDim.x) * kRepeatWarps;
    int64_t entry = static_cast<int64_t>(threadIdx.x / 32) * gridDim.x + blockIdx.x;
    for (int k = 0; k < count; ++k) {
      for (; entry < listed[k]; entry += warps) use(reads[k], entry);
      entry -= listed[k];
    }
  }
  template <int kSize>
  __device__ int64_t pieces() const {
    int64_t all = 0;
    for (int k = 0; k < count; ++k) all += piecesOf<kSize>(listed[k], reads[k].read.weights.rows);
    return all;
  }
  /// The products, in pieces of kSize rows by kSize outputs.
  template <int kSize>
  __device__ void multiply() const {
    int64_t before = 0;  // pieces of the reads before
    for (int k = 0; k < count; ++k) {
      if (listed[k] == 0) continue;
      const PlainRead &r = reads[k].read;
      const auto inputs = rowMajor<const float>(r.input.converted, listed[k], r.input.in.cols);
      if (r.integers.exist()) {
        multiplyTogether<kSize>(IntegerProduct(r), inputs, r.weights, r.sums, before);
      } else {
        multiplyTogether<kSize>(FloatProduct(r), inputs, r.weights, r.sums, before);
      }
      before += piecesOf<kSize>(inputs.rows, r.weights.rows);
    }
  }
};

/// make(j, load(j)) for the elements of a row, and store(j, result); by a warp, whose lanes have
/// four elements under way at once.
template <class Load, class Make, class Store>
__device__ void forRow(int64_t size, const Load &load, const Make &make, const Store &store) {
  constexpr int kAtOnce = 4;
  for (int64_t first = threadIdx.x % 32; first < size; first += 32 * kAtOnce) {
    float value[kAtOnce];
#pragma unroll
    for (int q = 0; q < kAtOnce; ++q) value[q] = load(pulsora::min(first + 32 * q, size - 1));
#pragma unroll
    for (int q = 0; q < kAtOnce; ++q)
      value[q] = make(pulsora::min(first + 32 * q, size - 1), value[q]);
#pragma unroll
    for (int q = 0; q < kAtOnce; ++q)
      if (first + 32 * q < size) store(first + 32 * q, value[q]);
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

/// Converts the inputs of a listed row; by a warp.
__device__ void convertListed(const PlainRead &r, int64_t entry) {
  const InputStage &input = r.input;
  if (input.passes != 1 || input.sums || input.squares || input.converter.noise > 0.0f ||
      input.converter.dac.stochastic) {
    convertWhole(r, entry);
    return;
  }
  const VectorView<const float> row = input.in.row(r.list[entry]);
  const float scale = input.state.scale[r.list[entry]];
  float *converted = input.converted + entry * row.size;
  forRow(
      row.size, [&](int64_t j) { return row[j]; },
      [&](int64_t, float x) { return convertedInput(input.converter, x, scale, 0.0f, 0.0f); },
      [&](int64_t j, float value) { converted[j] = value; });
}

/// Outputs of a listed row that need sums of inputs, or that have an adapter's added.
__device__ __noinline__ void finishWhole(const PlainRead &r, const AddedRead &added,
                                         int64_t entry) {
  const int64_t lines = r.output.out.cols;
  const int64_t row = r.list[entry];
  OutputStage output = r.output;
  output.list = {r.list, *r.count};
  for (int64_t line = threadIdx.x % 32; line < lines; line += 32) {
    if (r.input.sums || r.input.squares) {
      FinishOutput{output}.finish(entry, line);
    } else {
      output.out(row, line) = finishLine(output, added, row, line, r.sums[entry * lines + line]);
    }
  }
}

/// Makes the outputs of a listed row from its sums; by a warp.
__device__ void finishListed(const PlainRead &r, const AddedRead &added, int64_t entry) {
  if (r.input.sums || r.input.squares || added.isThere()) {
    finishWhole(r, added, entry);
    return;
  }
  const OutputStage &output = r.output;
  const int64_t row = r.list[entry];
  const float *sums = r.sums + entry * output.out.cols;
  const int32_t round = output.state.round[row];
  const float unit = output.state.scale[row] * output.outScale;
  bool clipped = false;
  forRow(
      output.out.cols, [&](int64_t line) { return sums[line]; },
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
    rows.forEach([](const SumOfReads &each, int64_t k) { convertListed(each.read, k); });
    grid.sync();
    if (rows.pieces<kLargePiece>() < gridDim.x) {
      rows.multiply<kSmallPiece>();
    } else {
      rows.multiply<kLargePiece>();
    }
    grid.sync();
    rows.forEach([](const SumOfReads &each, int64_t k) { finishListed(each.read, each.added, k); });
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
