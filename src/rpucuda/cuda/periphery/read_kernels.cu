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

/// The first read of one line for the samples of an octet.
template <bool kEffects>
struct LineReader {
  const OutputStage &s;
  int64_t line;
  LineSpread spread;
  Philox4 random{};
  NormalPair normals{};

  __device__ LineReader(const OutputStage &stage, int64_t line_, uint64_t octet)
      : s(stage), line(line_), spread(spreadOf(stage, line_)) {
    if (s.noisy) random = draw(s.draws.key, s.draws.noise, static_cast<uint64_t>(line), octet, 0);
  }
  /// Turns to a pair of samples.
  __device__ void turnTo(int pair) {
    if (s.noisy) normals = normalPair16(wordOf(random, static_cast<uint32_t>(pair)));
  }
  __device__ float read(int64_t row, float sum, bool second) const {
    LineSums in[2];
    in[0].sum = sum;
    OutputDraws draws[2];
    if (s.noisy) draws[0].noise = second ? normals.z1 : normals.z0;
    if (s.converter.adc.stochastic) {
      const uint64_t sample = s.draws.firstSample + static_cast<uint64_t>(row);
      draws[0].round = uniform(
          draw(s.draws.key, s.draws.round, static_cast<uint64_t>(line), sample, drawIndex(0, 0))
              .v[0]);
    }
    const Reading r = readLine<Passes::One, kEffects>(s.effects, s.converter, spread, in, draws);
    if (r.clipped != 0) s.state.clipped[row] = 1;
    return r.value * (s.state.scale[row] * s.outScale);
  }
};

/// The sums of a line for a pair of samples, their parts added in order.
__device__ inline void addParts(const PlainRead &r, int64_t row0, int64_t line, float (&sum)[2]) {
  const int64_t rows = r.output.out.rows;
  const int64_t lines = r.output.out.cols;
  const float *part = r.sums + row0 * lines + line;
  const bool there[2] = {row0 >= 0, row0 + 1 < rows};
  if (r.integers.exist() && r.parts > 1) {
    const IntegerSums exact = r.integerSums();
    for (int i = 0; i < 2; ++i) {
      if (there[i])
        sum[i] = valueOf(JoinParts::total(exact, rows * lines, (row0 + i) * lines + line), r.unit);
    }
    return;
  }
#pragma unroll 8
  for (int64_t p = r.integers.exist() ? 1 : pulsora::max(r.parts, int64_t{1}); p > 0;
       --p, part += rows * lines) {
    sum[0] += there[0] ? part[0] : 0.0f;
    sum[1] += there[1] ? part[lines] : 0.0f;
  }
}

/// A thread takes a line of kThreadPairs pairs of samples: of one pair, or of a whole octet, which
/// saves draws where there are threads enough. blockIdx.y counts kThreadPairs octets.
template <bool kEffects, bool kAdded, int kThreadPairs, int kJobs>
__global__ void __launch_bounds__(kPlainThreads)
    finishPlainKernel(const __grid_constant__ Jobs<SumOfReads, kJobs> jobs) {
  static_assert(kThreadPairs == 1 || kThreadPairs == kPairs, "a pair or an octet");
  constexpr int kRows = kThreadPairs * kOctet;  // of a block
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
  const int pair0 = kThreadPairs == 1 ? group : 0;
  const int octetOfBlock = kThreadPairs == 1 ? 0 : group;
  const uint64_t firstOctet = (s.draws.firstSample >> 3) + uint64_t{blockIdx.y} * kThreadPairs;
  const uint64_t octet = firstOctet + static_cast<uint64_t>(octetOfBlock);
  // Rows before the first sample are none of the mini-batch.
  const auto blockRow = static_cast<int64_t>(firstOctet * kOctet - s.draws.firstSample);
  const int64_t line = static_cast<int64_t>(blockIdx.x) * kFinishThreads + me % kFinishThreads;
  const int64_t rows = s.out.rows;
  if constexpr (kAdded) {
    for (int i = me; i < few * kRows; i += kPlainThreads) {
      const int64_t row = blockRow + i % kRows;
      inner[i] = row >= 0 && row < rows ? added.read.input.converted[row * few + i / kRows] : 0.0f;
    }
    for (int k = group; k < few; k += kPairs)
      weights[k * kFinishThreads + me % kFinishThreads] =
          line < s.out.cols ? added.read.weights(line, k) : 0.0f;
    __syncthreads();
  }
  const int64_t octetRow = blockRow + octetOfBlock * kOctet;
  if (line >= s.out.cols || octetRow + kOctet <= 0 || octetRow >= rows) return;
  LineReader<kEffects> own(s, line, octet);
  LineReader<kEffects> other(kAdded ? added.read.output : s, line, octet);
#pragma unroll
  for (int p = 0; p < kThreadPairs; ++p) {
    const int64_t row0 = octetRow + 2 * (pair0 + p);
    if (row0 + 1 < 0 || row0 >= rows) continue;
    float sum[2] = {};
    addParts(r, row0, line, sum);
    float addedSum[2] = {};
    if constexpr (kAdded) {
      const float *in = inner + octetOfBlock * kOctet + 2 * (pair0 + p);
      const auto add = [&](const auto &product) {
        typename std::decay_t<decltype(product)>::Sum both[2] = {};
#pragma unroll 4
        for (int k = 0; k < few; ++k) {
          const auto weight = product.weight(weights[k * kFinishThreads + me % kFinishThreads]);
          product.add(both[0], product.input(in[k * kRows]), weight);
          product.add(both[1], product.input(in[k * kRows + 1]), weight);
        }
        for (int i = 0; i < 2; ++i) addedSum[i] = product.result(both[i]);
      };
      added.read.integers.exist() ? add(IntegerProduct(added.read)) : add(FloatProduct(added.read));
    }
    own.turnTo(pair0 + p);
    if constexpr (kAdded) other.turnTo(pair0 + p);
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const int64_t row = row0 + half;
      if (row < 0 || row >= rows) continue;
      float out = own.read(row, half ? sum[1] : sum[0], half != 0);
      if constexpr (kAdded) {
        const float read = other.read(row, half ? addedSum[1] : addedSum[0], half != 0);
        out = pulsora::fma(added.factor, read, out);
      }
      s.out(row, line) = out;
    }
  }
}
template <bool kEffects, bool kAdded, int kThreadPairs>
constexpr JobKernel<SumOfReads> kFinishPlainKernel = {
    &finishPlainKernel<kEffects, kAdded, kThreadPairs, 1>,
    &finishPlainKernel<kEffects, kAdded, kThreadPairs, kMostJobs<SumOfReads>>};

template <int kThreadPairs>
void finishPlain(const Context &context, const SumOfReads &reads, int64_t octets) {
  const auto &[read, added] = reads;
  const auto few = added.isThere() ? static_cast<size_t>(added.read.weights.cols) : 0;
  const size_t sharedBytes = few * (kOctet * kThreadPairs + kFinishThreads) * sizeof(float);
  const dim3 grid(gridFor(read.output.out.cols, kFinishThreads),
                  static_cast<unsigned>((octets + kThreadPairs - 1) / kThreadPairs));
  const bool hasEffects = read.output.hasEffects || (few > 0 && added.read.output.hasEffects);
  const auto &kernel = hasEffects ? (few > 0 ? kFinishPlainKernel<true, true, kThreadPairs>
                                             : kFinishPlainKernel<true, false, kThreadPairs>)
                                  : (few > 0 ? kFinishPlainKernel<false, true, kThreadPairs>
                                             : kFinishPlainKernel<false, false, kThreadPairs>);
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
    launchJob(context.stream, kConvertKernel<Rows>, Rows::blocksFor(stage.list.count),
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
  constexpr int64_t kManyThreads = 1 << 18;  // with a thread for each line of an octet
  if (octets * read.output.out.cols >= kManyThreads) {
    finishPlain<kPairs>(context, {read, added}, octets);
  } else {
    finishPlain<1>(context, {read, added}, octets);
  }
}

}  // namespace pulsora
