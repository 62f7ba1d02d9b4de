#include <algorithm>
#include <cooperative_groups.h>

#include "cuda/core/launch.cuh"
#include "cuda/periphery/row_read.cuh"

// Repeated reads of rows that left the range of the ADC.

namespace pulsora {
namespace {

constexpr int kRepeatThreads = 256;
constexpr int kRepeatBlocksPerSm = 2;
constexpr int kRepeatWarps = kRepeatThreads / 32;
constexpr int kRepeatSide = 16;  // threads along the rows and along the outputs of a piece
static_assert(kRepeatSide * kRepeatSide == kRepeatThreads, "a thread per part of a piece");

// Rows and outputs of a piece. Blocks with small pieces have little to multiply between two waits
// for memory, so that their slices are deeper.
constexpr int kLarge = 64;
constexpr int kSmall = 32;
template <int kSize>
constexpr int kRepeatDepth = kSize == kSmall ? 64 : 16;  // products per slice

template <class T, int kSize>
using Slice = T[kRepeatDepth<kSize>][kSize + 4];  // lines of whole quads, in different banks

/// Shared memory for a slice of inputs and one of weights, of any size and type.
__device__ unsigned char *sliceMemory() {
  constexpr size_t kSlice = std::max(sizeof(Slice<float, kSmall>), sizeof(Slice<float, kLarge>));
  __shared__ __align__(16) unsigned char memory[2 * kSlice];
  return memory;
}

/// A thread's share of a slice of kSize rows of a matrix from row0 on; 0 outside. It is asked for
/// while the slice before it is multiplied.
template <class T, int kSize>
struct SliceLoader {
  static constexpr int kDepth = kRepeatDepth<kSize>;
  static constexpr int kElements = kSize * kDepth;

  MatrixView<const float> m;
  int64_t row0;
  T held[kElements / kRepeatThreads];

  /// Row and depth of an element: neighbouring threads read neighbours in memory.
  __device__ int rowOf(int i) const { return m.colStride == 1 ? i / kDepth : i % kSize; }
  __device__ int depthOf(int i) const { return m.colStride == 1 ? i % kDepth : i / kSize; }

  template <class Of>
  __device__ void ask(int64_t k0, const Of &of) {
#pragma unroll
    for (int e = 0; e < kElements / kRepeatThreads; ++e) {
      const int i = static_cast<int>(threadIdx.x) + e * kRepeatThreads;
      const int64_t row = row0 + rowOf(i);
      const int64_t k = k0 + depthOf(i);
      held[e] = row < m.rows && k < m.cols ? of(m(row, k)) : T{0};
    }
  }
  __device__ void store(Slice<T, kSize> &slice) const {
#pragma unroll
    for (int e = 0; e < kElements / kRepeatThreads; ++e) {
      const int i = static_cast<int>(threadIdx.x) + e * kRepeatThreads;
      slice[depthOf(i)][rowOf(i)] = held[e];
    }
  }
};

/// A thread's sums of a piece: neighbouring rows and outputs.
template <int kSize, class Product>
struct ThreadSums {
  static constexpr int kPart = kSize / kRepeatSide;  // rows and outputs of a thread
  using Factor = typename Product::Factor;
  using Factors = Slice<Factor, kSize>;

  typename Product::Sum acc[kPart][kPart] = {};

  __device__ static int row() { return static_cast<int>(threadIdx.x) / kRepeatSide * kPart; }
  __device__ static int line() { return static_cast<int>(threadIdx.x) % kRepeatSide * kPart; }

  __device__ void add(const Factors &inputs, const Factors &weights) {
#pragma unroll
    for (int k = 0; k < kRepeatDepth<kSize>; ++k) {
      Factor u[kPart];
      Factor w[kPart];
#pragma unroll
      for (int i = 0; i < kPart; ++i) u[i] = inputs[k][row() + i];
#pragma unroll
      for (int j = 0; j < kPart; ++j) w[j] = weights[k][line() + j];
#pragma unroll
      for (int i = 0; i < kPart; ++i) {
#pragma unroll
        for (int j = 0; j < kPart; ++j) Product::add(acc[i][j], u[i], w[j]);
      }
    }
  }
  /// use(row, output, sum) for the places of the piece that this thread has.
  template <class Use>
  __device__ void forEach(const Use &use) const {
#pragma unroll
    for (int i = 0; i < kPart; ++i) {
#pragma unroll
      for (int j = 0; j < kPart; ++j) use(row() + i, line() + j, acc[i][j]);
    }
  }
};

/// The operations of a product in floating point, and of one in integers.
struct FloatProduct {
  using Factor = float;
  using Sum = float;
  __device__ float input(float u) const { return u; }
  __device__ float weight(float w) const { return w; }
  __device__ static void add(float &sum, float u, float w) { sum = pulsora::fma(u, w, sum); }
  __device__ float result(float sum) const { return sum; }
};
struct IntegerProduct {
  using Factor = int32_t;
  using Sum = int64_t;
  const PlainRead &read;

  __device__ int32_t input(float level) const { return __float2int_rn(level); }
  __device__ int32_t weight(float w) const { return integerOf(read.integers, w); }
  __device__ static void add(int64_t &sum, int32_t n, int32_t v) { sum += int64_t{n} * v; }
  __device__ float result(int64_t sum) const { return valueOf(sum, read.unit); }
};

/// Pieces of a product: kSize rows of the inputs by kSize outputs.
template <int kSize>
__device__ int64_t piecesOf(int64_t rows, int64_t lines) {
  return (rows + kSize - 1) / kSize * ((lines + kSize - 1) / kSize);
}

/// sums = inputs weights^T; the blocks take its pieces in turn, from block `firstBlock` on.
template <int kSize, class Product>
__device__ void multiplyTogether(const Product &product, MatrixView<const float> inputs,
                                 MatrixView<const float> weights, float *sums, int64_t firstBlock) {
  using Factor = typename Product::Factor;
  using Factors = Slice<Factor, kSize>;
  Factors &inputSlice = *reinterpret_cast<Factors *>(sliceMemory());
  Factors &weightSlice = *reinterpret_cast<Factors *>(sliceMemory() + sizeof(Factors));
  constexpr int kDepth = kRepeatDepth<kSize>;
  const int64_t across = (weights.rows + kSize - 1) / kSize;
  const int64_t pieces = piecesOf<kSize>(inputs.rows, weights.rows);
  const auto input = [&](float u) { return product.input(u); };
  const auto weight = [&](float w) { return product.weight(w); };
  const int64_t blocks = gridDim.x;
  const int64_t first = (blockIdx.x + blocks - firstBlock % blocks) % blocks;
  for (int64_t piece = first; piece < pieces; piece += blocks) {
    SliceLoader<Factor, kSize> nextInputs{inputs, piece / across * kSize, {}};
    SliceLoader<Factor, kSize> nextWeights{weights, piece % across * kSize, {}};
    ThreadSums<kSize, Product> ofPiece;
    nextInputs.ask(0, input);
    nextWeights.ask(0, weight);
    for (int64_t k0 = 0; k0 < inputs.cols; k0 += kDepth) {
      __syncthreads();  // the previous slice is still read
      nextInputs.store(inputSlice);
      nextWeights.store(weightSlice);
      __syncthreads();
      nextInputs.ask(k0 + kDepth, input);
      nextWeights.ask(k0 + kDepth, weight);
      ofPiece.add(inputSlice, weightSlice);
    }
    ofPiece.forEach([&](int i, int j, const auto &sum) {
      const int64_t row = nextInputs.row0 + i;
      const int64_t line = nextWeights.row0 + j;
      if (row < inputs.rows && line < weights.rows)
        sums[row * weights.rows + line] = product.result(sum);
    });
  }
}

/// Whether a row of any read has left the range of the ADC; all blocks agree, as
/// long as no block writes the states of the rows. The states of all reads are loaded at once.
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
        multiplyTogether<kSize>(IntegerProduct{r}, inputs, r.weights, r.sums, before);
      } else {
        multiplyTogether<kSize>(FloatProduct{}, inputs, r.weights, r.sums, before);
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

/// Converts the inputs of a listed row; by a warp.
__device__ void convertListed(const PlainRead &r, int64_t entry) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  InputStage input = r.input;
  input.list = {r.list, *r.count};
  if (input.passes != 1 || input.converter.noise > 0.0f || input.converter.dac.stochastic) {
    convertRow<32>(input, entry, lane);
  } else {
    const int64_t row = r.list[entry];
    const float scale = input.state.scale[row];
    float *converted = input.converted + entry * input.in.cols;
    forRow(
        input.in.cols, [&](int64_t j) { return input.in(row, j); },
        [&](int64_t, float x) { return convertedInput(input.converter, x, scale, 0.0f, 0.0f); },
        [&](int64_t j, float value) { converted[j] = value; });
  }
  if (!input.sums && !input.squares) return;
  __syncwarp();
  if (lane == 0) sumConverted(input, entry);
}

/// Makes the outputs of a listed row from its sums; by a warp.
__device__ void finishListed(const PlainRead &r, const AddedRead &added, int64_t entry) {
  const int64_t lines = r.output.out.cols;
  const int64_t row = r.list[entry];
  const float *sums = r.sums + entry * lines;
  OutputStage output = r.output;
  output.list = {r.list, *r.count};
  if (r.input.sums || r.input.squares || added.isThere()) {
    for (int64_t line = threadIdx.x % 32; line < lines; line += 32) {
      if (r.input.sums || r.input.squares) {
        FinishOutput{output}.finish(entry, line);
      } else {
        output.out(row, line) = finishLine(output, added, row, line, sums[line]);
      }
    }
    return;
  }
  const int32_t round = output.state.round[row];
  const float unit = output.state.scale[row] * output.outScale;
  bool clipped = false;
  forRow(
      lines, [&](int64_t line) { return sums[line]; },
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
    if (rows.pieces<kLarge>() < gridDim.x) {
      rows.multiply<kSmall>();
    } else {
      rows.multiply<kLarge>();
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
