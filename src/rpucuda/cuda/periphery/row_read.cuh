#pragma once

#include "cuda/periphery/measure.cuh"
#include "cuda/periphery/products.cuh"
#include "numerics/divisor.h"
#include "periphery/gpu_read.h"

// Parts of a read that a whole block carries out for one row of the mini-batch.

namespace pulsora {

/// A plain read, and the result of an adapter that is added to it.
struct SumOfReads {
  PlainRead read;
  AddedRead added;
};

/// Adds the 8 sums of each of 32 lanes over the lanes: lane l gets sum number l % 8.
template <class Sum>
__device__ inline Sum addLanes(Sum (&sum)[8]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Each step halves the sums that a lane holds.
#pragma unroll
  for (int half = 4; half > 0; half /= 2) {
    const bool upper = (lane & half) != 0;
#pragma unroll
    for (int q = 0; q < half; ++q) {
      const Sum sent = upper ? sum[q] : sum[q + half];
      const Sum kept = upper ? sum[q + half] : sum[q];
      sum[q] = kept + ofLane(sent, half);
    }
  }
  for (int half = 8; half < 32; half *= 2) sum[0] += ofLane(sum[0], half);
  return sum[0];
}

/// The sum over j of w(i, j) in[j] for line i = threadIdx.x, if there is such a line: a few lines
/// at a time, with all threads along the inputs.
template <int kThreads, class Product>
__device__ inline float multiplyFew(const Product &product, MatrixView<const float> w,
                                    const float *in) {
  constexpr int kAtOnce = 8;
  constexpr int kWarps = kThreads / 32;
  using Sum = typename Product::Sum;
  __shared__ Sum partial[kWarps][kFewLines];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  for (int64_t first = 0; first < w.rows; first += kAtOnce) {
    Sum sum[kAtOnce] = {};
    const float *line[kAtOnce];
#pragma unroll
    for (int q = 0; q < kAtOnce; ++q)
      line[q] = w.data + (first + q < w.rows ? first + q : first) * w.rowStride;
#pragma unroll 4
    for (int64_t j = threadIdx.x; j < w.cols; j += kThreads) {
      const auto u = product.input(in[j]);
#pragma unroll
      for (int q = 0; q < kAtOnce; ++q)
        Product::add(sum[q], u, product.weight(line[q][j * w.colStride]));
    }
    const Sum mine = addLanes(sum);
    if (lane < kAtOnce) partial[warp][first + lane] = mine;
  }
  __syncthreads();
  Sum total = 0;
  if (threadIdx.x < w.rows)
    for (int p = 0; p < kWarps; ++p) total += partial[p][threadIdx.x];
  return product.result(total);
}

template <class Stage>
__device__ __noinline__ float drawnInput(const Stage &s, int64_t row, int64_t j, float scale,
                                         int32_t round) {
  return ConvertInput{s}.converted(row, j, scale, round);
}

/// store(j, input j of a row through the DAC) for the inputs [begin, end), `stride` apart.
template <class Store>
__device__ inline void convertInputs(const InputStage &s, int64_t row, int64_t begin, int64_t end,
                                     int stride, float scale, int32_t round, const Store &store) {
  if (s.converter.noise > 0.0f || s.converter.dac.stochastic) {
#pragma unroll 1
    for (int64_t j = begin; j < end; j += stride) store(j, drawnInput(s, row, j, scale, round));
  } else {
    const VectorView<const float> in = s.in.row(row);
#pragma unroll 4
    for (int64_t j = begin; j < end; j += stride)
      store(j, convertedInput(s.converter, in[j], scale, 0.0f, 0.0f));
  }
}

/// Whether a row can be converted four inputs at a time.
__device__ inline bool areQuads(const InputStage &s, const VectorView<const float> &in) {
  const auto places =
      reinterpret_cast<uintptr_t>(in.data) | reinterpret_cast<uintptr_t>(s.converted);
  const bool isDrawn = s.converter.noise > 0.0f || s.converter.dac.stochastic;
  return !isDrawn && in.stride == 1 && in.size % 4 == 0 && places % sizeof(float4) == 0;
}

template <class Converter_>
__device__ __noinline__ float4 fourConverted(const Converter_ &c, float4 x, float scale) {
  const auto of = [&](float v) { return convertedInput(c, v, scale, 0.0f, 0.0f); };
  return make_float4(of(x.x), of(x.y), of(x.z), of(x.w));
}

/// The inputs of a row, without draws, as levels of a product of integers: the numbers of
/// convertedInput(), but for the sign of 0.
class RowLevels {
 public:
  /// `largest` is the row's largest |input|.
  __device__ RowLevels(const InputConverter &converter, float scale, float largest)
      : converter_(converter), scale_(scale), divisor_(scale > 0.0f ? scale : 1.0f, largest) {}

  /// Whether levels need no division.
  __device__ bool arePlain() const {
    return divisor_.isPlain() && converter_.dac.perUnit <= 0x1p37f;
  }
  __device__ float plain(float x) const {
    const float bound = converter_.dac.bound;
    return clamp(nearestLevel(converter_.dac, divisor_.quotient(x)), -bound, bound);
  }
  /// plain(x) before it is rounded, as IntegerProduct::input() does; bounds are whole numbers.
  __device__ float unrounded(float x) const {
    const float bound = converter_.dac.bound;
    return fminf(fmaxf(divisor_.quotient(x) * converter_.dac.perUnit, -bound), bound);
  }
  __device__ float4 plain(float4 x) const {
    return make_float4(plain(x.x), plain(x.y), plain(x.z), plain(x.w));
  }
  __device__ float4 divided(float4 x) const { return fourConverted(converter_, x, scale_); }

 private:
  const InputConverter &converter_;
  float scale_;
  Divisor divisor_;
};

/// Stores four converted neighbours of entry k of the list, from input j on.
__device__ inline void storeFour(const InputStage &s, int64_t k, int64_t j, float4 four) {
  if (s.converted) *reinterpret_cast<float4 *>(s.converted + k * s.in.cols + j) = four;
  if (s.bytes.data) s.bytes.putFour(k, j, {four.x, four.y, four.z, four.w});
}

/// Converts entry k of the list four inputs at a time; by kThreads threads, one of which is this
/// thread, number `me`.
template <int kThreads>
__device__ inline void convertQuads(const InputStage &s, int64_t k,
                                    const VectorView<const float> &in, float scale, int me) {
#pragma unroll 2
  for (int64_t j = 4 * me; j < in.size; j += 4 * kThreads) {
    float4 four = *reinterpret_cast<const float4 *>(in.data + j);
    float *const value[4] = {&four.x, &four.y, &four.z, &four.w};
#pragma unroll
    for (float *v : value) *v = convertedInput(s.converter, *v, scale, 0.0f, 0.0f);
    storeFour(s, k, j, four);
  }
}

/// Measures and converts entry k of the list, whose inputs stay in registers; by a block of
/// kThreads. For levels, and rows of up to kMostKept inputs in quads.
constexpr int64_t kMostKept = 12288;
template <int kThreads>
__device__ inline void convertKept(const InputStage &s, int64_t k) {
  constexpr int kQuads = kMostKept / 4 / kThreads;
  const int64_t row = s.list[k];
  const VectorView<const float> in = s.in.row(row);
  const auto place = [&](int i) { return 4 * (static_cast<int64_t>(threadIdx.x) + i * kThreads); };
  float4 kept[kQuads];
#pragma unroll
  for (int i = 0; i < kQuads; ++i)
    kept[i] = place(i) < in.size ? *reinterpret_cast<const float4 *>(in.data + place(i)) : float4{};
  float largest = 0.0f;
  bool bad = false;
#pragma unroll
  for (const float4 &four : kept) {
    for (const float value : {four.x, four.y, four.z, four.w}) {
      largest = reduce::AbsLargest::add(largest, value);
      bad |= !isFinite(value);
    }
  }
  __shared__ MeasuredRow shared;
  const MeasuredRow measured = joinMeasures<kThreads>(s, row, bad ? kInfinity : largest);
  if (threadIdx.x == 0) shared = measured;
  __syncthreads();
  const RowLevels levels(s.converter, shared.scale, shared.largest);
  const bool plain = levels.arePlain();
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    if (place(i) >= in.size) break;
    storeFour(s, k, place(i), plain ? levels.plain(kept[i]) : levels.divided(kept[i]));
  }
  if (s.bytes.data && threadIdx.x == 0) s.bytes.end(k, in.size);
}

/// Converts entry k of the list; by kThreads threads, one of which is this thread, number `me`.
template <int kThreads>
__device__ inline void convertRow(const InputStage &s, int64_t k, int me) {
  const int64_t n = s.in.cols;
  if (s.passes == 1) {
    const int64_t row = s.list[k];
    float *converted = s.converted ? s.converted + k * n : nullptr;
    const LevelBytes bytes = s.bytes;
    const float scale = s.state.scale[row];
    if (const VectorView<const float> in = s.in.row(row); areQuads(s, in)) {
      convertQuads<kThreads>(s, k, in, scale, me);
    } else {
      convertInputs(s, row, me, n, kThreads, scale, s.state.round[row],
                    [&](int64_t j, float value) {
                      if (converted) converted[j] = value;
                      if (bytes.data) bytes.put(k, j, value);
                    });
    }
    if (bytes.data && me == 0) bytes.end(k, n);
  } else {
    const ConvertInput convert{s};
    for (int64_t j = me; j < n; j += kThreads) convert.convert(k, j);
  }
}

/// Converts entry k of the list, and measures it before if `measureFirst`; by a block of kThreads.
template <int kThreads>
__device__ inline void convertTogether(const InputStage &s, int64_t k, bool measureFirst) {
  const int64_t row = s.list[k];
  const VectorView<const float> in = s.in.row(row);
  if (measureFirst && s.passes == 1 && s.bytes.data && in.size <= kMostKept && areQuads(s, in))
    return convertKept<kThreads>(s, k);
  if (measureFirst) measureTogether<kThreads>(s, row);
  convertRow<kThreads>(s, k, static_cast<int>(threadIdx.x));
}

template <class Stage>
__device__ __noinline__ Reading drawnReading(const Stage &s, int64_t row, int64_t line, float sum,
                                             int32_t round) {
  const FinishOutput finish{s};
  return finish.readPlain(line, sum, finish.plainDraws(row, line, round));
}

/// The reading of one line from its ideal sum.
__device__ inline Reading readingOf(const OutputStage &s, int64_t row, int64_t line, float sum,
                                    int32_t round) {
  if (s.hasEffects || s.converter.adc.stochastic) return drawnReading(s, row, line, sum, round);
  const uint64_t sample = s.draws.firstSample + static_cast<uint64_t>(row);
  const float z = s.noisy ? normalOfSample(s.draws.key, s.draws.noise, static_cast<uint64_t>(line),
                                           sample, drawIndex(round, 0))
                          : 0.0f;
  return digitised(s.converter, sum, s.lineNoise[line], z, 0.0f);
}

/// The result of one line: its reading, scaled back. Flags the row if it leaves the range of the
/// ADC.
__device__ inline float finishLine(const OutputStage &s, int64_t row, int64_t line, float sum) {
  const Reading r = readingOf(s, row, line, sum, s.state.round[row]);
  if (r.clipped != 0) s.state.clipped[row] = 1;
  return r.value * (s.state.scale[row] * s.outScale);
}

/// The result of one line plus the result of an adapter.
__device__ inline float finishLine(const OutputStage &s, const AddedRead &added, int64_t row,
                                   int64_t line, float sum) {
  const float own = finishLine(s, row, line, sum);
  if (!added.isThere()) return own;
  return pulsora::fma(added.factor, finishLine(added.read.output, row, line, added.sum(row, line)),
                      own);
}

/// Whether a row is to be read again, and may be.
__device__ inline bool isWanted(const PlainRead &r, int64_t row) {
  return r.input.state.clipped[row] != 0 && r.input.state.round[row] < r.repeats;
}
__device__ inline bool isWanted(const AddedRead &added, int64_t row) {
  return added.isThere() && isWanted(added.read, row);
}

constexpr int kStagedInputs = 4096;  // of a row in shared memory; longer rows go through the cache

/// Reads a row of a mini-batch from its measurement to the last repetition, for few outputs. The
/// results also go to `results`, in shared memory. Returns the largest |input| in thread 0.
template <int kThreads, class Product>
__device__ inline float readRow(const PlainRead &r, int64_t row, float (&results)[kFewLines]) {
  __shared__ float staged[kStagedInputs];
  __shared__ float sharedScale;
  const int64_t n = r.input.in.cols;
  float *in = n <= kStagedInputs ? staged : r.input.converted + row * n;
  const Product product(r);
  const MeasuredRow measured = measureTogether<kThreads>(r.input, row);
  if (threadIdx.x == 0) sharedScale = measured.scale;
  for (int round = 0;; ++round) {
    __syncthreads();
    const float scale = sharedScale;
    convertInputs(r.input, row, threadIdx.x, n, kThreads, scale, round,
                  [&](int64_t j, float value) { in[j] = value; });
    __syncthreads();
    const float sum = multiplyFew<kThreads>(product, r.weights, in);
    const int64_t line = threadIdx.x;
    int clipped = 0;
    if (line < r.weights.rows) {
      const Reading read = readingOf(r.output, row, line, sum, round);
      clipped = static_cast<int>(read.clipped);
      results[line] = read.value * (scale * r.output.outScale);
      r.output.out(row, line) = results[line];
    }
    if (__syncthreads_or(clipped) == 0 || round == r.repeats) return measured.largest;
    if (threadIdx.x == 0) {
      sharedScale = nextScale(r.input.state, row, scale);
      countRepeat(r.input.state);
    }
  }
}

/// The largest of `count` |values|, in all lanes of the calling warp; a value that is not finite
/// counts as infinity and sets the non-finite flag.
__device__ inline float largestOf(const float (&values)[kFewLines], int64_t count,
                                  uint32_t *nonfiniteFlag) {
  float largest = 0.0f;
  for (int64_t k = threadIdx.x % 32; k < count; k += 32) {
    const bool bad = !isFinite(values[k]);
    largest = bad ? kInfinity : pulsora::max(largest, pulsora::abs(values[k]));
    if (bad && nonfiniteFlag) *nonfiniteFlag = 1;
  }
  for (int half = 16; half > 0; half /= 2)
    largest = pulsora::max(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, half));
  return largest;
}

/// A warp measures and converts a short row, whose values are also in shared memory.
__device__ inline void convertShortRow(const InputStage &s, int64_t row,
                                       const float (&values)[kFewLines]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float largest = largestOf(values, s.in.cols, s.nonfiniteFlag);
  float scale = 0.0f;
  if (lane == 0) scale = prepared(s, row, s.in.row(row), largest, true);
  scale = __shfl_sync(0xFFFFFFFFU, scale, 0);
  float *converted = s.converted + row * s.in.cols;
  convertInputs(s, row, lane, s.in.cols, 32, scale, 0,
                [&](int64_t k, float value) { converted[k] = value; });
}

}  // namespace pulsora
