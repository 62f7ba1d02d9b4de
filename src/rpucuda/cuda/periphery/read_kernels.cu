#include "core/backend.h"
#include "cuda/core/launch.cuh"
#include "cuda/periphery/rows_of_block.cuh"

// The stages of a read on the GPU, made of the element functors of read_stages.h.

namespace pulsora {
namespace {

constexpr int kMeasureThreads = 512;

struct Conversion {
  InputStage stage;
  bool measureFirst;
};

/// Rows are measured and converted in one launch.
template <class Rows, int kJobs>
__global__ void __launch_bounds__(Rows::kThreads, Rows::kBlocks)
    convertKernel(const __grid_constant__ Jobs<Conversion, kJobs> jobs) {
  awaitEarlier();
  const auto &[stage, measureFirst] = jobs.ofBlock();
  Rows::convert(stage, blockIdx.x, measureFirst);
}
template <class Rows>
constexpr JobKernel<Conversion> kConvertKernel = {&convertKernel<Rows, 1>,
                                                  &convertKernel<Rows, kMostJobs<Conversion>>};

template <int kJobs>
__global__ void __launch_bounds__(kMeasureThreads)
    measureKernel(const __grid_constant__ Jobs<InputStage, kJobs> jobs) {
  awaitEarlier();
  const InputStage &s = jobs.ofBlock();
  for (int64_t i = blockIdx.x; i < s.in.rows; i += gridDim.x)
    measureTogether<kMeasureThreads>(s, i);
}
constexpr JobKernel<InputStage> kMeasureKernel = {&measureKernel<1>,
                                                  &measureKernel<kMostJobs<InputStage>>};

constexpr int kFinishThreads = 64;

/// blockIdx.y is the entry of the list.
template <int kJobs>
__global__ void __launch_bounds__(kFinishThreads)
    finishKernel(const __grid_constant__ Jobs<OutputStage, kJobs> jobs) {
  awaitEarlier();
  const OutputStage &s = jobs.ofBlock();
  const int64_t line = static_cast<int64_t>(blockIdx.x) * kFinishThreads + threadIdx.x;
  if (line >= s.out.cols) return;
  const FinishOutput finish{s};
  for (int64_t k = blockIdx.y; k < s.list.count; k += gridDim.y) finish.finish(k, line);
}
constexpr JobKernel<OutputStage> kFinishKernel = {&finishKernel<1>,
                                                  &finishKernel<kMostJobs<OutputStage>>};

constexpr int kOctet = 8;  // samples that share a draw of normals; a pair of samples takes one word
constexpr int kPairs = kOctet / 2;
constexpr int kPlainThreads = kFinishThreads * kPairs;

/// The first read of one line for kSamples neighbouring samples of an octet, from row0 on. With
/// kGeneral, lines may have effects, and the ADC may round stochastically.
template <bool kGeneral, int kSamples>
struct LineReader {
  const OutputStage &s;
  int64_t row0;
  int64_t line;
  LineSpread spread;
  Philox4 random{};
  float unit[kSamples] = {};  // of the results

  __device__ LineReader(const OutputStage &stage, int64_t row0_, int64_t line_, uint64_t octet)
      : s(stage), row0(row0_), line(line_), spread(spreadOf(stage, line_)) {
#pragma unroll
    for (int i = 0; i < kSamples; ++i)
      if (isRow(i)) unit[i] = s.state.scale[row0 + i] * s.outScale;
    if (s.noisy) random = draw(s.draws.key, s.draws.noise, static_cast<uint64_t>(line), octet, 0);
  }
  /// Whether sample i is one of the mini-batch.
  __device__ bool isRow(int i) const { return row0 + i >= 0 && row0 + i < s.out.rows; }
  /// Replaces the ideal sums by results, and flags the rows that leave the range of the ADC.
  /// `firstPair` is the place of the samples in the octet.
  __device__ void read(float (&sums)[kSamples], int firstPair) const {
    uint32_t clipped = 0;
#pragma unroll
    for (int i = 0; i < kSamples; i += 2) {
      NormalPair z{};
      if (s.noisy) z = normalPair16(wordOf(random, static_cast<uint32_t>(firstPair + i / 2)));
      const Reading first = reading(i, sums[i], z.z0);
      const Reading second = reading(i + 1, sums[i + 1], z.z1);
      sums[i] = first.value * unit[i];
      sums[i + 1] = second.value * unit[i + 1];
      clipped |= (first.clipped | second.clipped << 1) << i;
    }
    if (clipped == 0) return;  // as most often
    for (int i = 0; i < kSamples; ++i)
      if ((clipped >> i & 1U) != 0 && isRow(i)) s.state.clipped[row0 + i] = 1;
  }

 private:
  __device__ Reading reading(int i, float sum, float z) const {
    if constexpr (!kGeneral) {
      OutputConverter converter = s.converter;
      converter.adc.stochastic = false;  // now known to the compiler
      return digitised(converter, sum, spread.noise, z, 0.0f);
    } else {
      LineSums in[2];
      in[0].sum = sum;
      OutputDraws draws[2];
      draws[0].noise = z;
      if (s.converter.adc.stochastic) {
        const uint64_t sample = s.draws.firstSample + static_cast<uint64_t>(row0 + i);
        draws[0].round = uniform(
            draw(s.draws.key, s.draws.round, static_cast<uint64_t>(line), sample, drawIndex(0, 0))
                .v[0]);
      }
      return s.hasEffects ? readLine<Passes::One, true>(s.effects, s.converter, spread, in, draws)
                          : readLine<Passes::One, false>(s.effects, s.converter, spread, in, draws);
    }
  }
};

/// The ideal sums of the samples of `reader`. The parts of a pair's sums are added in order; those
/// of an octet have one part.
template <class Reader, int kSamples>
__device__ inline void loadSums(const PlainRead &r, const Reader &reader, float (&sums)[kSamples]) {
  const int64_t lines = r.output.out.cols;
  const int64_t all = r.output.out.rows * lines;
  const int64_t at = reader.row0 * lines + reader.line;
  if (kSamples == 2 && r.integers.exist() && r.parts > 1) {
    const IntegerSums exact = r.integerSums();
    for (int i = 0; i < 2; ++i)
      if (reader.isRow(i)) sums[i] = valueOf(JoinParts::total(exact, all, at + i * lines), r.unit);
    return;
  }
  const int64_t parts = kSamples > 2 || r.integers.exist() ? 1 : pulsora::max(r.parts, int64_t{1});
  const float *part = r.sums + at;
#pragma unroll 8
  for (int64_t p = 0; p < parts; ++p, part += all) {
#pragma unroll
    for (int i = 0; i < kSamples; ++i)
      if (reader.isRow(i)) sums[i] += part[i * lines];
  }
}

/// The ideal sums of a line of an added read. Its inputs, kRows apart, and the line's weights, lie
/// in shared memory.
template <class Product, int kRows, int kSamples>
__device__ inline void addInputs(const AddedRead &added, const float *in, const float *weights,
                                 float (&sums)[kSamples]) {
  const Product product(added.read);
  const int few = static_cast<int>(added.read.weights.cols);
  typename Product::Sum sum[kSamples] = {};
#pragma unroll 2
  for (int k = 0; k < few; ++k) {
    const auto weight = product.weight(weights[k * kFinishThreads]);
#pragma unroll
    for (int i = 0; i < kSamples; ++i)
      product.add(sum[i], product.input(in[k * kRows + i]), weight);
  }
#pragma unroll
  for (int i = 0; i < kSamples; ++i) sums[i] = product.result(sum[i]);
}

/// A thread takes a line of kThreadPairs pairs of samples: of one pair, or of a whole octet, which
/// saves draws where there are threads enough. blockIdx.y counts kThreadPairs octets.
template <bool kGeneral, bool kAdded, int kThreadPairs, int kJobs>
__global__ void __launch_bounds__(kPlainThreads)
    finishPlainKernel(const __grid_constant__ Jobs<SumOfReads, kJobs> jobs) {
  static_assert(kThreadPairs == 1 || kThreadPairs == kPairs, "a pair or an octet");
  constexpr int kRows = kThreadPairs * kOctet;  // of a block
  constexpr int kSamples = 2 * kThreadPairs;
  awaitEarlier();
  extern __shared__ float shared[];
  const PlainRead &r = jobs.ofBlock().read;
  const AddedRead &added = jobs.ofBlock().added;
  const OutputStage &s = r.output;
  const int few = kAdded ? static_cast<int>(added.read.weights.cols) : 0;
  float *inner = shared;                  // [K][kRows], the inputs of the added read
  float *weights = shared + few * kRows;  // [K][kFinishThreads]
  const int me = static_cast<int>(threadIdx.x);
  const int group = me / kFinishThreads;
  const int column = me % kFinishThreads;
  const int rowOfBlock = group * kSamples;
  const int pair = kThreadPairs == 1 ? group : 0;  // of the octet
  const uint64_t firstOctet = (s.draws.firstSample >> 3) + uint64_t{blockIdx.y} * kThreadPairs;
  const uint64_t octet = firstOctet + static_cast<uint64_t>(kThreadPairs == 1 ? 0 : group);
  // Rows before the first sample are none of the mini-batch.
  const auto blockRow = static_cast<int64_t>(firstOctet * kOctet - s.draws.firstSample);
  const int64_t line = static_cast<int64_t>(blockIdx.x) * kFinishThreads + column;
  const int64_t rows = s.out.rows;
  if constexpr (kAdded) {
    for (int i = me; i < few * kRows; i += kPlainThreads) {
      const int64_t row = blockRow + i % kRows;
      inner[i] = row >= 0 && row < rows ? added.read.input.converted[row * few + i / kRows] : 0.0f;
    }
    for (int k = group; k < few; k += kPairs)
      weights[k * kFinishThreads + column] = line < s.out.cols ? added.read.weights(line, k) : 0.0f;
    __syncthreads();
  }
  const int64_t row0 = blockRow + rowOfBlock;
  if (line >= s.out.cols || row0 + kSamples <= 0 || row0 >= rows) return;
  // All loads come before the first store, which the compiler could not move them across.
  const LineReader<kGeneral, kSamples> own(s, row0, line, octet);
  float out[kSamples] = {};
  loadSums(r, own, out);
  own.read(out, pair);
  if constexpr (kAdded) {
    const LineReader<kGeneral, kSamples> other(added.read.output, row0, line, octet);
    float sums[kSamples];
    added.read.integers.exist()
        ? addInputs<IntegerProduct, kRows>(added, inner + rowOfBlock, weights + column, sums)
        : addInputs<FloatProduct, kRows>(added, inner + rowOfBlock, weights + column, sums);
    other.read(sums, pair);
#pragma unroll
    for (int i = 0; i < kSamples; ++i) out[i] = pulsora::fma(added.factor, sums[i], out[i]);
  }
#pragma unroll
  for (int i = 0; i < kSamples; ++i)
    if (own.isRow(i)) s.out(row0 + i, line) = out[i];
}
template <bool kGeneral, bool kAdded, int kThreadPairs>
constexpr JobKernel<SumOfReads> kFinishPlainKernel = {
    &finishPlainKernel<kGeneral, kAdded, kThreadPairs, 1>,
    &finishPlainKernel<kGeneral, kAdded, kThreadPairs, kMostJobs<SumOfReads>>};

template <bool kGeneral, int kThreadPairs>
void finishPlain(const Context &context, const SumOfReads &reads, int64_t octets) {
  const auto &[read, added] = reads;
  const auto few = added.isThere() ? static_cast<size_t>(added.read.weights.cols) : 0;
  const size_t sharedBytes = few * (kOctet * kThreadPairs + kFinishThreads) * sizeof(float);
  const dim3 grid(gridFor(read.output.out.cols, kFinishThreads),
                  static_cast<unsigned>((octets + kThreadPairs - 1) / kThreadPairs));
  const auto &kernel = few > 0 ? kFinishPlainKernel<kGeneral, true, kThreadPairs>
                               : kFinishPlainKernel<kGeneral, false, kThreadPairs>;
  launchJob(context.stream, kernel, grid, kPlainThreads, sharedBytes, reads);
}

}  // namespace

void cudaMeasureInputs(const Context &context, const InputStage &stage) {
  const CudaScope scope(context.device);
  launchJob(context.stream, kMeasureKernel, gridFor(stage.in.rows, 1), kMeasureThreads, 0, stage);
}

void cudaConvertInputs(const Context &context, const InputStage &stage, bool measureFirst) {
  const CudaScope scope(context.device);
  const auto convert = [&](auto rows) {
    using Rows = decltype(rows);
    launchJob(context.stream, kConvertKernel<Rows>, Rows::blocksToConvert(stage.list.count),
              Rows::kThreads, 0, Conversion{stage, measureFirst});
  };
  constexpr int64_t kLongRow = 1024;  // which keeps a warp busy for too long
  if (stage.in.cols > kLongRow) {
    convert(BlockPerRow{});
  } else {
    withRowsOf(context, stage.in.cols, stage.in.rows, convert);
  }
  if (stage.sums || stage.squares)
    forEach(context, stage.passes * stage.list.count, SumConverted{stage});
}

void cudaFinishOutputs(const Context &context, const OutputStage &stage) {
  const CudaScope scope(context.device);
  const int64_t count = stage.list.count;
  const dim3 grid(gridFor(stage.out.cols, kFinishThreads),
                  static_cast<unsigned>(count < 65535 ? count : 65535));
  launchJob(context.stream, kFinishKernel, grid, kFinishThreads, 0, stage);
}

void cudaFinishPlain(const Context &context, const PlainRead &read, const AddedRead &added) {
  const CudaScope scope(context.device);
  const int64_t octets = (read.input.in.rows + 2 * kOctet - 2) / kOctet;
  PULSORA_CHECK(InputError, octets < 65536, "a mini-batch of ", read.input.in.rows,
                " samples is more than the GPU takes; use smaller batches");
  const auto isGeneral = [](const OutputStage &s) {
    return s.hasEffects || s.converter.adc.stochastic;
  };
  constexpr int64_t kManyThreads = 1 << 18;  // with a thread for each line of an octet
  if (isGeneral(read.output) || (added.isThere() && isGeneral(added.read.output))) {
    finishPlain<true, 1>(context, {read, added}, octets);
  } else if (octets * read.output.out.cols < kManyThreads || read.parts > 1) {
    finishPlain<false, 1>(context, {read, added}, octets);
  } else {
    finishPlain<false, kPairs>(context, {read, added}, octets);
  }
}

}  // namespace pulsora
