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

/// The first read of one line for a pair of samples.
template <bool kEffects>
struct LineReader {
  const OutputStage &s;
  int64_t line;
  LineSpread spread;
  NormalPair normals{};

  /// `octet` is the number of the eight samples to which the pair belongs.
  __device__ LineReader(const OutputStage &stage, int64_t line_, uint64_t octet, uint32_t pair)
      : s(stage),
        line(line_),
        spread{stage.lineNoise[line_], stage.lineOffset[line_], stage.lineBend[line_]} {
    if (!s.noisy) return;
    const Philox4 random = draw(s.draws.key, s.draws.noise, static_cast<uint64_t>(line), octet, 0);
    normals = normalPair16(wordOf(random, pair));
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

/// A thread takes a line of a pair of samples; blockIdx.y is the octet.
template <bool kEffects, bool kAdded, int kJobs>
__global__ void __launch_bounds__(kPlainThreads)
    finishPlainKernel(const __grid_constant__ Jobs<SumOfReads, kJobs> jobs) {
  awaitEarlier();
  extern __shared__ float shared[];
  const PlainRead &r = jobs.ofBlock().read;
  const AddedRead &added = jobs.ofBlock().added;
  const OutputStage &s = r.output;
  const int few = kAdded ? static_cast<int>(added.read.weights.cols) : 0;
  float *inner = shared;                   // [K][kOctet], the inputs of the added read
  float *weights = shared + few * kOctet;  // [K][kFinishThreads]
  const int me = static_cast<int>(threadIdx.x);
  const int pair = me / kFinishThreads;
  const uint64_t octet = (s.draws.firstSample >> 3) + blockIdx.y;
  const auto octetRow = static_cast<int64_t>(octet * kOctet - s.draws.firstSample);  // may be < 0
  const int64_t line = static_cast<int64_t>(blockIdx.x) * kFinishThreads + me % kFinishThreads;
  const int64_t rows = s.out.rows;
  if constexpr (kAdded) {
    for (int i = me; i < few * kOctet; i += kPlainThreads) {
      const int64_t row = octetRow + i % kOctet;
      inner[i] = row >= 0 && row < rows ? added.read.input.converted[row * few + i / kOctet] : 0.0f;
    }
    for (int k = pair; k < few; k += kPairs)
      weights[k * kFinishThreads + me % kFinishThreads] =
          line < s.out.cols ? added.read.weights(line, k) : 0.0f;
    __syncthreads();
  }
  const int64_t row0 = octetRow + 2 * pair;
  if (line >= s.out.cols || row0 + 1 < 0 || row0 >= rows) return;
  float sum[2] = {};
  addParts(r, row0, line, sum);
  const LineReader<kEffects> own(s, line, octet, static_cast<uint32_t>(pair));
  const LineReader<kEffects> other(kAdded ? added.read.output : s, line, octet,
                                   static_cast<uint32_t>(pair));
  float addedSum[2] = {};
  if constexpr (kAdded) {
    const auto add = [&](const auto &product) {
      typename std::decay_t<decltype(product)>::Sum both[2] = {};
#pragma unroll 4
      for (int k = 0; k < few; ++k) {
        const auto weight = product.weight(weights[k * kFinishThreads + me % kFinishThreads]);
        product.add(both[0], product.input(inner[k * kOctet + 2 * pair]), weight);
        product.add(both[1], product.input(inner[k * kOctet + 2 * pair + 1]), weight);
      }
      for (int i = 0; i < 2; ++i) addedSum[i] = product.result(both[i]);
    };
    added.read.integers.exist() ? add(IntegerProduct(added.read)) : add(FloatProduct(added.read));
  }
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
template <bool kEffects, bool kAdded>
constexpr JobKernel<SumOfReads> kFinishPlainKernel = {
    &finishPlainKernel<kEffects, kAdded, 1>,
    &finishPlainKernel<kEffects, kAdded, kMostJobs<SumOfReads>>};

}  // namespace

void cudaMeasureInputs(const Context &context, const InputStage &stage) {
  const CudaScope scope(context.device);
  launchJob(context.stream, kMeasureKernel, gridFor(stage.in.rows, 1), kMeasureThreads, 0, stage);
}

void cudaConvertInputs(const Context &context, const InputStage &stage, bool measureFirst) {
  const CudaScope scope(context.device);
  withRowsOf(context, stage.in.cols, stage.in.rows, [&](auto rows) {
    using Rows = decltype(rows);
    launchJob(context.stream, kConvertKernel<Rows>, Rows::blocksFor(stage.list.count),
              Rows::kThreads, 0, Conversion{stage, measureFirst});
  });
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
  const auto few = added.isThere() ? static_cast<size_t>(added.read.weights.cols) : 0;
  const size_t sharedBytes = few * (kOctet + kFinishThreads) * sizeof(float);
  const dim3 grid(gridFor(read.output.out.cols, kFinishThreads), static_cast<unsigned>(octets));
  const bool hasEffects = read.output.hasEffects || (few > 0 && added.read.output.hasEffects);
  const auto &kernel =
      hasEffects ? (few > 0 ? kFinishPlainKernel<true, true> : kFinishPlainKernel<true, false>)
                 : (few > 0 ? kFinishPlainKernel<false, true> : kFinishPlainKernel<false, false>);
  launchJob(context.stream, kernel, grid, kPlainThreads, sharedBytes, SumOfReads{read, added});
}

}  // namespace pulsora
