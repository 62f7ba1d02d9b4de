#include "cuda/core/launch.cuh"
#include "cuda/periphery/short_row.cuh"

namespace pulsora {
namespace {

constexpr int kShortReadBlocks = 8;  // on a processor at once; more registers gain less

/// Whether a read draws the noise of its outputs alone, and nothing else acts on its lines.
bool isSimple(const PlainRead &read) {
  const InputConverter &in = read.input.converter;
  return !read.output.hasEffects && !read.output.converter.adc.stochastic && !(in.noise > 0.0f) &&
         !in.dac.stochastic;
}

// Simple reads. Threads of a quad take kAtOnce lines each at a time. The weights of the array are
// in shared memory, as factors, one after another for the lines of an input. Each thread of a quad
// converts a quarter of the inputs, and the eight rows of a warp, which draw from one block of
// random numbers or two, draw each block once.

constexpr unsigned kWarp = 0xFFFFFFFFU;

int linesAtOnce(int64_t lines) { return lines <= kQuad ? 1 : lines <= 2 * kQuad ? 2 : 4; }

/// Lines of the array in shared memory.
template <int kAtOnce>
__host__ __device__ inline int paddedLines(int64_t lines) {
  return (static_cast<int>(lines) + kAtOnce - 1) / kAtOnce * kAtOnce;
}

template <int kAtOnce, class Product>
__device__ inline void stageWeights(const Product &product, const MatrixView<const float> &w,
                                    typename Product::Factor *factors) {
  const int lines = paddedLines<kAtOnce>(w.rows);
  for (int i = static_cast<int>(threadIdx.x); i < lines * static_cast<int>(w.cols);
       i += kShortRowThreads) {
    const int line = i % lines;
    factors[i] = product.weight(line < w.rows ? w(line, i / lines) : 0.0f);
  }
  __syncthreads();
}

/// Sums of kAtOnce lines from `first` on; the quad converts four inputs at a time.
template <int kAtOnce, class Product>
__device__ inline void addProducts(const Product &product, const PlainRead &r, const Quad &quad,
                                   float scale, const typename Product::Factor *factors, int first,
                                   typename Product::Sum (&sums)[kAtOnce]) {
  const VectorView<const float> in = r.input.in.row(quad.row);
  const auto size = static_cast<int>(in.size);
  const int lines = paddedLines<kAtOnce>(r.weights.rows);
  const bool isIdle = first >= lines;
#pragma unroll 1
  for (int begin = 0; begin < size; begin += kQuad) {
    const int j = begin + quad.place;
    const float own = j < size ? convertedInput(r.input.converter, in[j], scale, 0.0f, 0.0f) : 0.0f;
#pragma unroll
    for (int k = 0; k < kQuad; ++k) {
      const auto u = product.input(__shfl_sync(kWarp, own, k, kQuad));
      if (begin + k >= size || isIdle) continue;
      const typename Product::Factor *w = factors + (begin + k) * lines + first;
#pragma unroll
      for (int q = 0; q < kAtOnce; ++q) Product::add(sums[q], u, w[q]);
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

/// Reads a row again until it stays within the range of the ADC.
template <class Product>
__device__ __noinline__ void repeatShortRow(const PlainRead &r, const Quad &quad, float scale) {
  bool clipped = true;
  for (int32_t round = 1; clipped && round <= r.repeats; ++round) {
    scale = nextScale(r.input.state, quad.row, scale);
    if (quad.place == 0) countRepeat(r.input.state);
    clipped = readShortRowOnce<Product>(r, quad, scale, round, [&](int64_t line, float value) {
      r.output.out(quad.row, line) = value;
    });
  }
}

/// Reads short rows, if the read isSimple().
template <class Product, int kAtOnce, int kJobs>
__global__ void __launch_bounds__(kShortRowThreads, kShortReadBlocks)
    readSimpleRowsKernel(const __grid_constant__ Jobs<PlainRead, kJobs> jobs) {
  extern __shared__ __align__(16) unsigned char shared[];
  using Factor = typename Product::Factor;
  awaitEarlier();
  const PlainRead &r = jobs.ofBlock();
  const Product product(r);
  auto *factors = reinterpret_cast<Factor *>(shared);
  stageWeights<kAtOnce>(product, r.weights, factors);
  Quad quad = Quad::ofThread();
  const bool isRow = quad.row < r.input.in.rows;
  // All lanes of a warp draw; those behind the last row do not store.
  const int64_t stored = quad.row;
  if (!isRow) quad.row = r.input.in.rows - 1;
  const float scale = measureShortRow(r.input, quad, isRow).scale;
  const OutputStage &out = r.output;
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
      out.out(quad.row, first + q) = reading.value * (scale * out.outScale);
    }
  }
  if (quad.any(clipped) && r.repeats > 0) repeatShortRow<Product>(r, quad, scale);
}
template <class Product, int kAtOnce>
constexpr JobKernel<PlainRead> kReadSimpleRowsKernel = {
    &readSimpleRowsKernel<Product, kAtOnce, 1>,
    &readSimpleRowsKernel<Product, kAtOnce, kMostJobs<PlainRead>>};

template <class Product, int kAtOnce>
void readSimpleRows(const Context &context, const PlainRead &read) {
  const int64_t factors = int64_t{paddedLines<kAtOnce>(read.weights.rows)} * read.weights.cols;
  launchJob(context.stream, kReadSimpleRowsKernel<Product, kAtOnce>,
            gridForRows(read.input.in.rows), kShortRowThreads,
            static_cast<size_t>(factors) * sizeof(typename Product::Factor), read);
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
  const Quad quad = Quad::ofThread();
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
    if (added.isThere() || !isSimple(read)) {
      launchJob(context.stream, kReadShortRowsKernel<Product>, gridForRows(read.input.in.rows),
                kShortRowThreads, 0, ShortRead{read, first, added});
      return;
    }
    const int atOnce = linesAtOnce(read.weights.rows);
    if (atOnce == 1) {
      readSimpleRows<Product, 1>(context, read);
    } else if (atOnce == 2) {
      readSimpleRows<Product, 2>(context, read);
    } else {
      readSimpleRows<Product, 4>(context, read);
    }
  });
}

}  // namespace pulsora
