#include "cuda/core/grid.h"
#include "cuda/core/launch.cuh"
#include "cuda/periphery/row_per_thread.cuh"

namespace pulsora {
namespace {

constexpr int kShortReadBlocks = 8;    // on a processor at once; more registers gain less
constexpr int64_t kQuadBlocks = 2112;  // of simple reads: twice those at once on the largest cards

// Simple reads by quads. Threads of a quad take kAtOnce lines each at a time. The weights of the
// array are in shared memory, as factors, one after another for the lines of an input, for all rows
// that a block takes. Each thread of a quad converts a quarter of the inputs. The eight rows of a
// warp draw from one block of random numbers or two, and draw each block once. Instructions are the
// bound, so inputs and lines are filled up with zeros instead of being compared.

constexpr unsigned kWarp = 0xFFFFFFFFU;

int linesAtOnce(int64_t lines) { return lines <= kQuad ? 1 : lines <= 2 * kQuad ? 2 : 4; }

/// A number of lines or inputs, filled up.
template <int kMultiple>
__host__ __device__ inline int padded(int64_t count) {
  return (static_cast<int>(count) + kMultiple - 1) / kMultiple * kMultiple;
}

template <int kAtOnce, class Product>
__device__ inline void stageWeights(const Product &product, const MatrixView<const float> &w,
                                    typename Product::Factor *factors) {
  const int lines = padded<kAtOnce>(w.rows);
  const int all = lines * padded<kQuad>(w.cols);
  for (int i = static_cast<int>(threadIdx.x); i < all; i += kShortRowThreads) {
    const int line = i % lines;
    const int input = i / lines;
    factors[i] = product.weight(line < w.rows && input < w.cols ? w(line, input) : 0.0f);
  }
  __syncthreads();
}

/// Factors of neighbouring lines, which one access reads.
template <class Factor, int kAtOnce>
struct alignas(kAtOnce * sizeof(Factor)) Factors {
  Factor of[kAtOnce];
};

/// Sums of kAtOnce lines from `first` on; the quad converts four inputs at a time.
template <int kAtOnce, class Product>
__device__ inline void addProducts(const Product &product, const PlainRead &r, const Quad &quad,
                                   float scale, const typename Product::Factor *factors, int first,
                                   typename Product::Sum (&sums)[kAtOnce]) {
  const VectorView<const float> in = r.input.in.row(quad.row);
  const auto size = static_cast<int>(in.size);
  const int lines = padded<kAtOnce>(r.weights.rows);
  // Threads without lines add up some that others have.
  const typename Product::Factor *w = factors + ::min(first, lines - kAtOnce);
  const float *own = in.data + quad.place * in.stride;
#pragma unroll 1
  for (int left = size; left > 0; left -= kQuad, own += kQuad * in.stride) {
    float bits = 0.0f;
    if (quad.place < left)
      bits = product.bitsOf(convertedInput(r.input.converter, *own, scale, 0.0f, 0.0f));
#pragma unroll
    for (int k = 0; k < kQuad; ++k, w += lines) {
      const auto u = product.ofBits(__shfl_sync(kWarp, bits, k, kQuad));
      // In floating point, 0 * 0 turns a sum of -0 into +0.
      if (!Product::kOfLevels && k >= left) continue;
      const auto here = *reinterpret_cast<const Factors<typename Product::Factor, kAtOnce> *>(w);
#pragma unroll
      for (int q = 0; q < kAtOnce; ++q) Product::add(sums[q], u, here.of[q]);
    }
  }
}

/// normalOfSample() of kAtOnce lines from `first` on in round 0, for the rows of a warp.
template <int kAtOnce>
__device__ inline void drawNormals(const OutputStage &s, const Quad &quad, int first,
                                   float (&z)[kAtOnce]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint64_t sample = s.draws.firstSample + static_cast<uint64_t>(quad.row);
  const uint64_t begin = (sample - static_cast<uint64_t>(lane / kQuad)) >> 3;  // the first block
  const int number = lane / kQuad % (2 * kAtOnce);
  const Philox4 own =
      draw(s.draws.key, s.draws.noise, static_cast<uint64_t>(first + number % kAtOnce),
           begin + static_cast<uint64_t>(number / kAtOnce), drawIndex(0, 0));
  const int block = static_cast<int>((sample >> 3) - begin);
#pragma unroll
  for (int q = 0; q < kAtOnce; ++q) {
    const int from = (block * kAtOnce + q) * kQuad + quad.place;
    Philox4 theirs;
#pragma unroll
    for (int word = 0; word < 4; ++word) theirs.v[word] = __shfl_sync(kWarp, own.v[word], from);
    z[q] = normalOf(theirs, static_cast<uint32_t>(sample));
  }
}

/// A quad reads its row, with the weights as `factors` in shared memory.
template <class Product, int kAtOnce>
__device__ inline void readSimpleRow(const Product &product, const PlainRead &r, Quad quad,
                                     const typename Product::Factor *factors) {
  const bool isRow = quad.row < r.input.in.rows;
  // All lanes of a warp draw; those behind the last row do not store.
  const int64_t stored = quad.row;
  if (!isRow) quad.row = r.input.in.rows - 1;
  const float scale = measureShortRow(r.input, quad, isRow).scale;
  const OutputStage &out = r.output;
  const VectorView<float> to = out.out.row(quad.row);
  Quad drawing = quad;
  drawing.row = stored;
  bool clipped = false;
  const auto lines = static_cast<int>(r.weights.rows);
#pragma unroll 1
  for (int begin = 0; begin < lines; begin += kQuad * kAtOnce) {
    const int first = begin + quad.place * kAtOnce;
    typename Product::Sum sums[kAtOnce] = {};
    addProducts<kAtOnce>(product, r, quad, scale, factors, first, sums);
    float z[kAtOnce] = {};
    if (out.noisy) drawNormals<kAtOnce>(out, drawing, first, z);
#pragma unroll
    for (int q = 0; q < kAtOnce; ++q) {
      if (!isRow || first + q >= lines) continue;
      const Reading reading =
          digitised(out.converter, product.result(sums[q]), out.lineNoise[first + q], z[q], 0.0f);
      clipped |= reading.clipped != 0;
      to[first + q] = reading.value * (scale * out.outScale);
    }
  }
  if (quad.any(clipped) && r.repeats > 0) repeatShortRow<Product>(r, quad, scale);
}

/// Makes a simple read by quads.
template <class Product, int kAtOnce, int kJobs>
__global__ void __launch_bounds__(kShortRowThreads, kShortReadBlocks)
    readByQuadsKernel(const __grid_constant__ Jobs<PlainRead, kJobs> jobs) {
  extern __shared__ __align__(16) unsigned char shared[];
  using Factor = typename Product::Factor;
  awaitEarlier();
  const PlainRead &r = jobs.ofBlock();
  const Product product(r);
  auto *factors = reinterpret_cast<Factor *>(shared);
  stageWeights<kAtOnce>(product, r.weights, factors);
#pragma unroll 1
  for (int64_t group = blockIdx.x; group * kShortRowsPerBlock < r.input.in.rows; group += gridDim.x)
    readSimpleRow<Product, kAtOnce>(product, r, Quad::ofThread(group), factors);
}
template <class Product, int kAtOnce>
constexpr JobKernel<PlainRead> kReadByQuadsKernel = {
    &readByQuadsKernel<Product, kAtOnce, 1>,
    &readByQuadsKernel<Product, kAtOnce, kMostJobs<PlainRead>>};

template <class Product, int kAtOnce>
void readByQuads(const Context &context, const PlainRead &read) {
  const int64_t factors =
      int64_t{padded<kAtOnce>(read.weights.rows)} * padded<kQuad>(read.weights.cols);
  launchJob(context.stream, kReadByQuadsKernel<Product, kAtOnce>,
            gridFor(read.input.in.rows, kShortRowsPerBlock, kQuadBlocks), kShortRowThreads,
            static_cast<size_t>(factors) * sizeof(typename Product::Factor), read);
}

/// Makes a simple read by threads.
template <class Product, int kLines, int kJobs>
__global__ void __launch_bounds__(kShortRowThreads, 6)
    readByThreadsKernel(const __grid_constant__ Jobs<PlainRead, kJobs> jobs) {
  extern __shared__ __align__(16) unsigned char shared[];
  awaitEarlier();
  const PlainRead &r = jobs.ofBlock();
  const RowPerThread<Product, kLines> rows(r, shared);
  constexpr int kRows = RowPerThread<Product, kLines>::kRowsOfBlock;
#pragma unroll 1
  for (int64_t first = int64_t{blockIdx.x} * kRows; first < r.input.in.rows;
       first += int64_t{gridDim.x} * kRows)
    rows.read(first);
}
template <class Product, int kLines>
constexpr JobKernel<PlainRead> kReadByThreadsKernel = {
    &readByThreadsKernel<Product, kLines, 1>,
    &readByThreadsKernel<Product, kLines, kMostJobs<PlainRead>>};

/// Launches readByThreadsKernel, and returns whether its blocks have memory enough.
template <class Product, int kLines>
bool readByThreads(const Context &context, const PlainRead &read) {
  constexpr int64_t kBlocks = 1584;      // those at once on the largest cards, twice
  constexpr size_t kMostMemory = 49152;  // of a block
  using Rows = RowPerThread<Product, kLines>;
  const size_t memory = Rows::memoryOf(read.weights);
  if (memory > kMostMemory) return false;
  launchJob(context.stream, kReadByThreadsKernel<Product, kLines>,
            gridFor(read.input.in.rows, Rows::kRowsOfBlock, kBlocks), kShortRowThreads, memory,
            read);
  return true;
}

template <class Product>
bool readByThreadsOf(const Context &context, const PlainRead &read) {
  const int64_t lines = read.weights.rows;
  if (lines <= 4) return readByThreads<Product, 4>(context, read);
  if (lines <= 8) return readByThreads<Product, 8>(context, read);
  return readByThreads<Product, 16>(context, read);
}

template <class Product>
bool readByThreads(const Context &context, const PlainRead &read) {
  if constexpr (Product::kOfLevels) {
    constexpr float kLargestByte = 127.0f;
    if (read.input.converter.dac.bound <= kLargestByte &&
        read.weights.cols <= FourBytes<3>::kMostInputs) {
      return read.integers.bits == 24 ? readByThreadsOf<FourBytes<3>>(context, read)
                                      : readByThreadsOf<FourBytes<2>>(context, read);
    }
  }
  return readByThreadsOf<OneByOne<Product>>(context, read);
}

/// Makes a simple read: by threads if they fill a GPU, else by quads.
template <class Product>
void readSimpleRows(const Context &context, const PlainRead &read) {
  constexpr int64_t kManyRows = int64_t{1} << 16;
  const int64_t rows = context.rowsOfBatch(read.input.in.rows);
  if (rows >= kManyRows && readByThreads<Product>(context, read)) return;
  const int atOnce = linesAtOnce(read.weights.rows);
  if (atOnce == 1) {
    readByQuads<Product, 1>(context, read);
  } else if (atOnce == 2) {
    readByQuads<Product, 2>(context, read);
  } else {
    readByQuads<Product, 4>(context, read);
  }
}

// Any reads.

struct ShortRead {
  PlainRead read;
  PlainRead first;
  AddedRead added;
};

/// Reads short rows; with an adapter, reads its first array and then adds its second one.
template <class Product, int kJobs>
__global__ void __launch_bounds__(kShortRowThreads, kShortReadBlocks)
    readShortRowsKernel(const __grid_constant__ Jobs<ShortRead, kJobs> jobs) {
  awaitEarlier();
  const PlainRead &r = jobs.ofBlock().read;
  const PlainRead &first = jobs.ofBlock().first;
  const AddedRead &added = jobs.ofBlock().added;
  const Quad quad = Quad::ofThread(blockIdx.x);
  if (quad.row >= r.input.in.rows) return;
  readShortRow<Product>(r, quad);
  if (!added.isThere()) return;
  readShortRow<Product>(first, quad);
  const auto add = [&](int64_t line, float value) {
    float &out = r.output.out(quad.row, line);
    out = pulsora::fma(added.factor, value, out);
  };
  readShortRow<Product>(added.read, quad, add, [&] { readShortRow<Product>(r, quad); });
}
template <class Product>
constexpr JobKernel<ShortRead> kReadShortRowsKernel = {
    &readShortRowsKernel<Product, 1>, &readShortRowsKernel<Product, kMostJobs<ShortRead>>};

}  // namespace

void cudaReadShortRows(const Context &context, const PlainRead &read, const PlainRead &first,
                       const AddedRead &added) {
  const CudaScope scope(context.device);
  withProductOf(read, [&](auto product) {
    using Product = typename decltype(product)::Type;
    if (!added.isThere() && hasOutputNoiseAlone(read.input, read.output))
      return readSimpleRows<Product>(context, read);
    launchJob(context.stream, kReadShortRowsKernel<Product>, gridForRows(read.input.in.rows),
              kShortRowThreads, 0, ShortRead{read, first, added});
  });
}

}  // namespace pulsora
