#include <cooperative_groups.h>

#include "cuda/core/launch.cuh"
#include "cuda/periphery/row_read.cuh"

// Repeated reads of rows that left the range of the ADC.

namespace pulsora {
namespace {

constexpr int kRepeatThreads = 256;
constexpr int kRepeatBlocksPerSm = 2;
constexpr int kRepeatDepth = 16;  // products per slice
constexpr int kRepeatSide = 16;   // threads along the rows and along the outputs of a piece
static_assert(kRepeatSide * kRepeatSide == kRepeatThreads, "a thread per part of a piece");

template <class T, int kSize>
using Slice = T[kRepeatDepth][kSize + 4];  // lines of whole quads, in different banks

/// A thread's share of a slice of kSize rows of a matrix from row0 on; 0 outside. It is asked for
/// while the slice before it is multiplied.
template <class T, int kSize>
struct SliceLoader {
  static constexpr int kElements = kSize * kRepeatDepth;

  MatrixView<const float> m;
  int64_t row0;
  T held[kElements / kRepeatThreads];

  /// Row and depth of an element: neighbouring threads read neighbours in memory.
  __device__ int rowOf(int i) const { return m.colStride == 1 ? i / kRepeatDepth : i % kSize; }
  __device__ int depthOf(int i) const { return m.colStride == 1 ? i % kRepeatDepth : i / kSize; }

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
    for (int k = 0; k < kRepeatDepth; ++k) {
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
  __shared__ __align__(16) Slice<Factor, kSize> inputSlice;
  __shared__ __align__(16) Slice<Factor, kSize> weightSlice;
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
    for (int64_t k0 = 0; k0 < inputs.cols; k0 += kRepeatDepth) {
      __syncthreads();  // the previous slice is still read
      nextInputs.store(inputSlice);
      nextWeights.store(weightSlice);
      __syncthreads();
      nextInputs.ask(k0 + kRepeatDepth, input);
      nextWeights.ask(k0 + kRepeatDepth, weight);
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

/// Whether any row is to be read again. All blocks agree, as long as no block writes the states of
/// the rows.
__device__ bool anyWanted(const PlainRead &r, const AddedRead &added) {
  int any = 0;
  for (int64_t i = threadIdx.x; i < r.input.in.rows; i += kRepeatThreads)
    any |= isWanted(r, i) || isWanted(added, i) ? 1 : 0;
  return __syncthreads_or(any) != 0;
}

/// Whether a row of any read has left the range of the ADC; all blocks agree, as in anyWanted().
/// The states of all reads are loaded at once.
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
/// anyWanted().
__device__ uint32_t wantedReads(const SumOfReads *reads, int count) {
  uint32_t wanted = 0;
  for (int k = 0; k < count; ++k) wanted |= anyWanted(reads[k].read, reads[k].added) ? 1U << k : 0U;
  return wanted;
}

/// The inputs of the rows that are read again, of which *read.count are listed.
__device__ InputStage listedInputs(const PlainRead &read) {
  InputStage input = read.input;
  input.list = {read.list, *read.count};
  return input;
}

/// The products of the wanted reads, in pieces of kSize rows by kSize outputs.
template <int kSize>
__device__ void multiplyWanted(const SumOfReads *reads, int count, uint32_t wanted) {
  int64_t pieces = 0;  // of the reads before
  for (int k = 0; k < count; ++k) {
    if ((wanted >> k & 1U) == 0) continue;
    const PlainRead &r = reads[k].read;
    const auto inputs = rowMajor<const float>(r.input.converted, *r.count, r.input.in.cols);
    if (r.integers.exist()) {
      multiplyTogether<kSize>(IntegerProduct{r}, inputs, r.weights, r.sums, pieces);
    } else {
      multiplyTogether<kSize>(FloatProduct{}, inputs, r.weights, r.sums, pieces);
    }
    pieces += piecesOf<kSize>(inputs.rows, r.weights.rows);
  }
}

/// Reads rows again, round by round, as long as a row leaves the range of the ADC; by all blocks,
/// which work on all reads at once.
__device__ void repeatReads(const SumOfReads *reads, int count) {
  constexpr int kLarge = 64;
  constexpr int kSmall = 32;
  const auto grid = cooperative_groups::this_grid();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kRepeatThreads + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kRepeatThreads;
  while (const uint32_t wanted = wantedReads(reads, count)) {
    const auto forWanted = [&](const auto &use) {
      for (int k = 0; k < count; ++k) {
        if ((wanted >> k & 1U) != 0) use(reads[k].read, reads[k].added);
      }
    };
    grid.sync();
    for (int k = static_cast<int>(blockIdx.x); k < count; k += static_cast<int>(gridDim.x)) {
      if ((wanted >> k & 1U) != 0) listWanted(reads[k].read, reads[k].added);
    }
    grid.sync();
    int64_t pieces = 0;
    forWanted([&](const PlainRead &r, const AddedRead &) {
      const InputStage input = listedInputs(r);
      const ConvertInput convert{input};
      for (int64_t i = first; i < input.list.count * input.in.cols; i += stride) convert(i);
      pieces += piecesOf<kLarge>(input.list.count, r.weights.rows);
    });
    grid.sync();
    forWanted([&](const PlainRead &r, const AddedRead &) {
      const InputStage input = listedInputs(r);
      if (!input.sums && !input.squares) return;
      for (int64_t i = first; i < input.list.count; i += stride) sumConverted(input, i);
    });
    if (pieces < gridDim.x) {
      multiplyWanted<kSmall>(reads, count, wanted);
    } else {
      multiplyWanted<kLarge>(reads, count, wanted);
    }
    grid.sync();
    forWanted([&](const PlainRead &r, const AddedRead &added) {
      OutputStage output = r.output;
      output.list = {r.list, *r.count};
      const FinishOutput finish{output};
      const int64_t lines = output.out.cols;
      const bool hasSums = r.input.sums || r.input.squares;
      for (int64_t i = first; i < output.list.count * lines; i += stride) {
        if (hasSums) {
          finish(i);
        } else {
          const int64_t row = r.list[i / lines];
          output.out(row, i % lines) = finishLine(r.output, added, row, i % lines, r.sums[i]);
        }
      }
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
