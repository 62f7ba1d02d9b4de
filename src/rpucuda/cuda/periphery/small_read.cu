#include "cuda/core/launch.cuh"
#include "cuda/periphery/rows_of_block.cuh"

// Plain reads of arrays whose weights the second-level cache holds, in one launch.

namespace pulsora {
namespace {

// --- few outputs

template <class Rows, class Product, int kJobs>
__global__ void __launch_bounds__(Rows::kThreads, Rows::kBlocks)
    readRowsKernel(const __grid_constant__ Jobs<PlainRead, kJobs> jobs) {
  awaitEarlier();
  Rows::template read<Product>(jobs.ofBlock(), blockIdx.x,
                               [](int64_t, float, const float (&)[kFewLines]) {});
}
template <class Rows, class Product>
constexpr JobKernel<PlainRead> kReadRowsKernel = {
    &readRowsKernel<Rows, Product, 1>, &readRowsKernel<Rows, Product, kMostJobs<PlainRead>>};

// --- many outputs

// A block takes kGroupRows rows of the mini-batch and kOutputs outputs; in the end each thread has
// one output of one row.
constexpr int kGroupRows = 8;
constexpr int kGroupThreads = 256;
constexpr int kGroupWarps = kGroupThreads / 32;
constexpr int kOutputs = 32;
constexpr int kChunk = 512;  // inputs at a time

// Marks of a group, all 0 between launches: blocks that are done, rows whose inputs of an added
// read are ready, and clipped rows.
constexpr int kDone = 0;
constexpr int kReady = 1;
constexpr int kClipped = 2;
constexpr int kMarks = kClipped + kGroupRows;
static_assert(kGroupRows == 8 && kGroupWarps == kGroupRows, "a warp per row, rows in two quads");

using Inputs = float[kChunk][kGroupRows];  // as the bits of a product's factors
using Sums = float[kGroupRows][kOutputs];

struct Rows {
  int64_t first;
  int count;
};

__device__ inline void loadInputs(const float (&from)[kGroupRows], float (&u)[kGroupRows]) {
  const float4 low = *reinterpret_cast<const float4 *>(&from[0]);
  const float4 high = *reinterpret_cast<const float4 *>(&from[4]);
  u[0] = low.x, u[1] = low.y, u[2] = low.z, u[3] = low.w;
  u[4] = high.x, u[5] = high.y, u[6] = high.z, u[7] = high.w;
}

/// Lanes along the inputs, four outputs per warp.
template <class Product_>
struct AlongInputs {
  using Product = Product_;
  using Sum = typename Product::Sum;
  static constexpr int kBlocks = sizeof(Sum) == sizeof(float) ? 2 : 1;  // as registers allow
  static constexpr int kFeedingBlocks = kBlocks;
  static constexpr int kLines = kOutputs / kGroupWarps;
  Sum sum[kLines * kGroupRows] = {};

  __device__ void add(const Product &product, MatrixView<const float> w, int64_t line0, int64_t k0,
                      int depth, const Inputs &inputs) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int64_t mine = line0 + static_cast<int>(threadIdx.x) / 32 * kLines;
    const float *line[kLines];
#pragma unroll
    for (int q = 0; q < kLines; ++q)
      line[q] = w.data + pulsora::min(mine + q, w.rows - 1) * w.rowStride + k0 * w.colStride;
#pragma unroll 4
    for (int i = lane; i < depth; i += 32) {
      float u[kGroupRows];
      loadInputs(inputs[i], u);
#pragma unroll
      for (int q = 0; q < kLines; ++q) {
        const auto weight = product.weight(line[q][i * w.colStride]);
#pragma unroll
        for (int r = 0; r < kGroupRows; ++r)
          Product::add(sum[q * kGroupRows + r], product.ofBits(u[r]), weight);
      }
    }
  }

  /// Each step halves the sums that a lane holds; lane l ends with sum number l.
  __device__ void store(const Product &product, Sums &sums) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int half = 16; half > 0; half /= 2) {
      const bool upper = (lane & half) != 0;
#pragma unroll
      for (int i = 0; i < half; ++i) {
        const Sum sent = upper ? sum[i] : sum[i + half];
        const Sum kept = upper ? sum[i + half] : sum[i];
        sum[i] = kept + ofLane(sent, half);
      }
    }
    sums[lane % kGroupRows][static_cast<int>(threadIdx.x) / 32 * kLines + lane / kGroupRows] =
        product.result(sum[0]);
  }
};

/// A lane per output, for weights whose outputs are adjacent; warps share the inputs.
template <class Product_>
struct LanePerOutput {
  using Product = Product_;
  using Sum = typename Product::Sum;
  static constexpr int kBlocks = 2;
  static constexpr int kFeedingBlocks = sizeof(Sum) == sizeof(float) ? 3 : 2;
  Sum sum[kGroupRows] = {};

  __device__ void add(const Product &product, MatrixView<const float> w, int64_t line0, int64_t k0,
                      int depth, const Inputs &inputs) {
    const int64_t mine = pulsora::min(line0 + static_cast<int>(threadIdx.x) % 32, w.rows - 1);
    const float *line = w.data + mine * w.rowStride + k0 * w.colStride;
#pragma unroll 8
    for (int i = static_cast<int>(threadIdx.x) / 32; i < depth; i += kGroupWarps) {
      float u[kGroupRows];
      loadInputs(inputs[i], u);
      const auto weight = product.weight(line[i * w.colStride]);
#pragma unroll
      for (int r = 0; r < kGroupRows; ++r) Product::add(sum[r], product.ofBits(u[r]), weight);
    }
  }

  __device__ void store(const Product &product, Sums &sums) {
    constexpr int kAtOnce = static_cast<int>(kGroupWarps * sizeof(float) / sizeof(Sum));
    __shared__ Sum partial[kAtOnce][kGroupRows][kOutputs];
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    Sum total = 0;
#pragma unroll
    for (int first = 0; first < kGroupWarps; first += kAtOnce) {
      if (first > 0) __syncthreads();
      if (warp / kAtOnce * kAtOnce == first) {
#pragma unroll
        for (int r = 0; r < kGroupRows; ++r) partial[warp - first][r][lane] = sum[r];
      }
      __syncthreads();
      for (int p = 0; p < kAtOnce; ++p) total += partial[p][warp][lane];
    }
    sums[warp][lane] = product.result(total);
  }
};

/// sums = inputs weights^T for one group and the outputs from `line0` on. Each warp converts its
/// row, unless all inputs are converted already.
template <class Layout>
__device__ void multiplyGroup(const PlainRead &r, const Rows &rows, int64_t line0, float scale,
                              int32_t round, bool isConverted, Inputs &inputs, Sums &sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const typename Layout::Product product(r);
  Layout layout;
  for (int64_t k0 = 0; k0 < r.weights.cols; k0 += kChunk) {
    const int depth = static_cast<int>(pulsora::min(r.weights.cols - k0, int64_t{kChunk}));
    __syncthreads();
    if (!isConverted) {
      if (warp < rows.count) {
        convertInputs(
            r.input, rows.first + warp, k0 + lane, k0 + depth, 32, scale, round,
            [&](int64_t j, float value) { inputs[j - k0][warp] = product.bitsOf(value); });
      } else {
        for (int i = lane; i < depth; i += 32) inputs[i][warp] = 0.0f;
      }
      __syncthreads();
    }
    layout.add(product, r.weights, line0, k0, depth, inputs);
  }
  layout.store(product, sums);
  __syncthreads();
}

/// Reads rows of a group again as long as they leave the range of an ADC; by one block, a warp per
/// row.
template <class Layout>
__device__ __noinline__ void repeatGroup(const PlainRead &r, const AddedRead &added,
                                         const Rows &rows, Inputs &inputs, Sums &sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t row = rows.first + warp;
  const bool isRow = warp < rows.count;
  for (;;) {
    const bool own = isRow && isWanted(r, row);
    const bool others = isRow && isWanted(added, row);
    if (__syncthreads_or(own || others) == 0) return;
    if (lane == 0 && own) NextRead{r.input.state}(row);
    if (lane == 0 && others) NextRead{added.read.input.state}(row);
    __syncthreads();
    for (int64_t k = lane; others && k < added.read.input.in.cols; k += 32)
      ConvertInput{added.read.input}.convert(row, k);
    __syncthreads();
    const float scale = isRow ? r.input.state.scale[row] : 0.0f;
    const int32_t round = isRow ? r.input.state.round[row] : 0;
    for (int64_t line0 = 0; line0 < r.weights.rows; line0 += kOutputs) {
      const bool isConverted = line0 > 0 && r.weights.cols <= kChunk;
      multiplyGroup<Layout>(r, rows, line0, scale, round, isConverted, inputs, sums);
      const int64_t line = line0 + lane;
      if ((own || others) && line < r.weights.rows)
        r.output.out(row, line) = finishLine(r.output, added, row, line, sums[warp][lane]);
    }
    __syncthreads();
  }
}

/// Reads a row of an adapter's first array, and marks for the row's group that the inputs of the
/// second array are ready.
template <class Product>
__device__ void feedRow(const PlainRead &first, const InputStage &second, int64_t row,
                        uint32_t *marks) {
  __shared__ float results[kFewLines];
  readRow<kGroupThreads, Product>(first, row, results);
  if (threadIdx.x < 32) convertShortRow(second, row, results);
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence();
  atomicAdd(&marks[kReady], 1u);
}

/// Waits until feedRow() is done for `rows` rows.
__device__ void awaitRows(const uint32_t *marks, int rows) {
  if (threadIdx.x == 0) {
    const volatile uint32_t *ready = &marks[kReady];
    while (*ready < static_cast<uint32_t>(rows)) __nanosleep(20);
    __threadfence();
  }
  __syncthreads();
}

/// The block of a group that finishes last repeats the rows that left the range of the ADC; usually
/// there are none.
template <class Layout, bool kFeeds>
__device__ void readGroup(const PlainRead &r, const AddedRead &added, int64_t group,
                          int64_t lineBlock, unsigned lineBlocks, uint32_t *marks) {
  __shared__ alignas(16) Inputs inputs;
  __shared__ Sums sums;
  __shared__ bool isLast;
  const int64_t row0 = group * kGroupRows;
  const Rows rows{row0,
                  static_cast<int>(pulsora::min(r.input.in.rows - row0, int64_t{kGroupRows}))};
  const int64_t line0 = lineBlock * kOutputs;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t row = rows.first + warp;
  const bool isRow = warp < rows.count;
  // Every block of a group measures its rows; the first one stores the result.
  const float scale = isRow ? measureByWarp(r.input, row, lineBlock == 0).scale : 0.0f;
  multiplyGroup<Layout>(r, rows, line0, scale, 0, false, inputs, sums);
  const int64_t line = line0 + lane;
  const bool isMine = isRow && line < r.weights.rows;
  float out = 0.0f;
  if (isMine) {
    const Reading read = readingOf(r.output, row, line, sums[warp][lane], 0);
    out = read.value * (scale * r.output.outScale);
    if (read.clipped != 0 && r.repeats > 0) marks[kClipped + warp] = 1;
  }
  if constexpr (kFeeds) {
    awaitRows(marks, rows.count);
    if (isMine) {
      out = pulsora::fma(added.factor,
                         finishLine(added.read.output, row, line, added.sum(row, line)), out);
    }
  }
  if (isMine) r.output.out(row, line) = out;
  if (r.repeats == 0 && (!kFeeds || added.read.repeats == 0)) {
    if (kFeeds && threadIdx.x == 0 && atomicAdd(&marks[kDone], 1u) + 1 == lineBlocks)
      marks[kDone] = marks[kReady] = 0;
    return;
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) isLast = atomicAdd(&marks[kDone], 1u) + 1 == lineBlocks;
  __syncthreads();
  if (!isLast) return;
  __threadfence();
  if (threadIdx.x < rows.count) {
    r.input.state.clipped[rows.first + threadIdx.x] =
        static_cast<int32_t>(__ldcg(&marks[kClipped + threadIdx.x]));
  }
  __syncthreads();
  if (threadIdx.x < kMarks) marks[threadIdx.x] = 0;
  repeatGroup<Layout>(r, added, rows, inputs, sums);
}

/// A read, plus the result of an adapter, whose first array `first` reads.
struct GroupedRead {
  PlainRead read;
  PlainRead first;
  AddedRead added;
  unsigned lineBlocks;
  uint32_t *marks;
};

/// With kFeeds, each of the first blocks reads a row of the adapter, while the others multiply and
/// then wait for these blocks. Blocks start in the order of their numbers, so no block waits for
/// one that cannot start.
template <class Layout, bool kFeeds, int kJobs>
__global__ void __launch_bounds__(kGroupThreads, kFeeds ? Layout::kFeedingBlocks : Layout::kBlocks)
    readGroupsKernel(const __grid_constant__ Jobs<GroupedRead, kJobs> jobs) {
  awaitEarlier();
  const auto &[r, first, added, lineBlocks, allMarks] = jobs.ofBlock();
  const int64_t rows = r.input.in.rows;
  int64_t block = blockIdx.x;
  if constexpr (kFeeds) {
    if (block < rows) {
      feedRow<typename Layout::Product>(first, added.read.input, block,
                                        allMarks + block / kGroupRows * kMarks);
      return;
    }
    block -= rows;
  }
  const int64_t groups = (rows + kGroupRows - 1) / kGroupRows;
  const int64_t group = block % groups;
  readGroup<Layout, kFeeds>(r, added, group, block / groups, lineBlocks, allMarks + group * kMarks);
}
template <class Layout, bool kFeeds>
constexpr JobKernel<GroupedRead> kReadGroupsKernel = {
    &readGroupsKernel<Layout, kFeeds, 1>,
    &readGroupsKernel<Layout, kFeeds, kMostJobs<GroupedRead>>};

}  // namespace

void cudaReadRows(const Context &context, const PlainRead &read) {
  const CudaScope scope(context.device);
  const auto launch = [&](auto rows, auto product) {
    using Rows = decltype(rows);
    using Product = typename decltype(product)::Type;
    launchJob(context.stream, kReadRowsKernel<Rows, Product>, Rows::blocksFor(read.input.in.rows),
              Rows::kThreads, 0, read);
  };
  withReadersOf(context, launch, read);
}

void cudaReserveMarks(const Context &context, int64_t rows, Buffer<uint32_t> &marks) {
  const int64_t groups = (rows + kGroupRows - 1) / kGroupRows;
  if (marks.size() < groups * kMarks) marks = Buffer<uint32_t>::zeros(context, groups * kMarks);
}

void cudaReadGroups(const Context &context, const PlainRead &read, const PlainRead &first,
                    const AddedRead &added, Buffer<uint32_t> &marks) {
  const int64_t rows = read.input.in.rows;
  const int64_t groups = (rows + kGroupRows - 1) / kGroupRows;
  cudaReserveMarks(context, rows, marks);
  const CudaScope scope(context.device);
  const auto lineBlocks = static_cast<unsigned>((read.weights.rows + kOutputs - 1) / kOutputs);
  const int64_t feeders = added.isThere() ? rows : 0;
  const auto blocks = static_cast<unsigned>(feeders + groups * lineBlocks);
  const bool adjacent = read.weights.rowStride == 1 && read.weights.colStride != 1;
  withProductOf(read, [&](auto product) {
    using Product = typename decltype(product)::Type;
    const auto &kernel = adjacent ? (feeders > 0 ? kReadGroupsKernel<LanePerOutput<Product>, true>
                                                 : kReadGroupsKernel<LanePerOutput<Product>, false>)
                                  : (feeders > 0 ? kReadGroupsKernel<AlongInputs<Product>, true>
                                                 : kReadGroupsKernel<AlongInputs<Product>, false>);
    launchJob(context.stream, kernel, blocks, kGroupThreads, 0,
              GroupedRead{read, first, added, lineBlocks, marks.data()});
  });
}

}  // namespace pulsora
