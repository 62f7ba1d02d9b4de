#pragma once

#include "cuda/core/async_copy.cuh"
#include "cuda/periphery/packed_products.cuh"
#include "cuda/periphery/short_row.cuh"

// Simple reads of many short rows, those of hasOutputNoiseAlone(). A thread takes a row: it finds
// the row's scale, converts its inputs, and makes its results for kLines lines at a time. Rows come
// through shared memory, so that neighbouring threads load neighbouring inputs. The weights of the
// array stay in shared memory, as factors, for all rows that a block takes. Rows that leave the
// range of the ADC are read again by quads of threads. A Product is one of packed_products.cuh.

namespace pulsora {

template <class Product, int kLines>
class RowPerThread {
  using Factor = typename Product::Factor;
  using Sum = typename Product::Sum;

  static constexpr unsigned kWarp = 0xFFFFFFFFU;
  static constexpr int kRows = 32;  // of a warp
  static constexpr int kInputs = Product::kInputs;
  static constexpr int kFactors = Product::kFactors;
  static constexpr int kChunk = 32;           // inputs of a row that are in shared memory at a time
  static constexpr int kStride = kChunk + 1;  // of rows there, without conflicts of banks
  static constexpr int kWarps = kShortRowThreads / kRows;
  static constexpr int kMostBlocks = kRows / 8 + 1;  // of random numbers, for the rows of a warp
  /// Factors of neighbouring lines, which one access reads.
  static constexpr int kTogether = 4;
  static_assert(kLines % kTogether == 0);
  struct alignas(kTogether * sizeof(Factor)) Factors {
    Factor of[kTogether];
  };
  /// Memory of a warp: inputs, then random numbers, then results.
  static constexpr int kMemory = kRows * kStride * static_cast<int>(sizeof(float));
  static constexpr int kWordsOfLine = 4 * kMostBlocks;
  static constexpr int kResultsOfRow = kLines + 1;
  static_assert((kLines * kWordsOfLine + kRows * kResultsOfRow) * 4 <= kMemory);

 public:
  static constexpr int kRowsOfBlock = kWarps * kRows;

  /// Bytes of shared memory that a block needs.
  static size_t memoryOf(const MatrixView<const float> &weights) {
    const int64_t factors = groups(weights.cols) * kFactors * padded(weights.rows);
    return static_cast<size_t>(factors) * sizeof(Factor) + size_t{kWarps} * kMemory;
  }

  /// Puts the weights into shared memory; by all threads of a block.
  __device__ RowPerThread(const PlainRead &read, unsigned char *shared)
      : r_(read),
        product_(read),
        lane_(static_cast<int>(threadIdx.x) % kRows),
        warp_(static_cast<int>(threadIdx.x) / kRows),
        stride_(static_cast<int>(padded(read.weights.rows))),
        memory_(reinterpret_cast<float *>(shared + warp_ * kMemory)),
        factors_(reinterpret_cast<Factor *>(shared + kWarps * kMemory)) {
    const MatrixView<const float> w = read.weights;
    const int all = stride_ * static_cast<int>(groups(w.cols));
    for (int i = static_cast<int>(threadIdx.x); i < all; i += kShortRowThreads) {
      const int line = i % stride_;
      const int group = i / stride_;
      float own[kInputs];
#pragma unroll
      for (int e = 0; e < kInputs; ++e) {
        const int input = group * kInputs + e;
        own[e] = line < w.rows && input < w.cols ? w(line, input) : 0.0f;
      }
      Factor factors[kFactors];
      product_.factorsOf(own, factors);
#pragma unroll
      for (int d = 0; d < kFactors; ++d)
        factors_[(group * kFactors + d) * stride_ + line] = factors[d];
    }
    __syncthreads();
  }

  /// Reads rows from `first` on; by all threads of a block.
  __device__ void read(int64_t first) const {
    const int64_t begin = first + warp_ * kRows;  // row of lane 0
    const int64_t left = r_.input.in.rows - begin;
    if (left <= 0) return;
    const int rows = left < kRows ? static_cast<int>(left) : kRows;
    const bool isRow = lane_ < rows;
    const int64_t row = begin + (isRow ? lane_ : 0);
    const auto inputs = static_cast<int>(r_.input.in.cols);
    const MeasuredRow measured = measure(begin, rows, row, isRow);
    const RowLevels levels(r_.input.converter, measured.scale, measured.largest);
    const bool plain = Product::kOfLevels && __all_sync(kWarp, levels.arePlain());
    bool clipped = false;
    const auto lines = static_cast<int>(r_.weights.rows);
#pragma unroll 1
    for (int line = 0; line < lines; line += kLines) {
      Sum sums[kLines] = {};
#pragma unroll 1
      for (int from = 0; from < inputs; from += kChunk) {
        const int count = pulsora::min(inputs - from, kChunk);
        // The inputs of rows of one chunk are there from their measurement.
        if (inputs > kChunk || line > 0) stage(begin, rows, from, count);
        const Factor *w = factors_ + from / kInputs * kFactors * stride_ + line;
        if (plain) {
          addChunk(count, w, sums, [&](float x) { return levels.unrounded(x); });
        } else {
          const float scale = measured.scale;
          addChunk(count, w, sums, [&](float x) {
            return convertedInput(r_.input.converter, x, scale, 0.0f, 0.0f);
          });
        }
      }
      clipped |= finish(begin, rows, line, pulsora::min(lines - line, kLines),
                        measured.scale * r_.output.outScale, sums);
    }
    if (r_.repeats > 0) repeat(begin, __ballot_sync(kWarp, clipped && isRow), measured.scale);
  }

 private:
  static __host__ __device__ int64_t padded(int64_t lines) {
    return (lines + kLines - 1) / kLines * kLines;
  }
  static __host__ __device__ int64_t groups(int64_t inputs) {
    return (inputs + kInputs - 1) / kInputs;
  }

  /// Puts `count` inputs of all rows into shared memory, from input `from` on; what does not exist
  /// is 0.
  __device__ void stage(int64_t begin, int rows, int from, int count) const {
    __syncwarp();
    if (count > 16) {
      stageRows<1>(begin, rows, from, count);
    } else if (count > 8) {
      stageRows<2>(begin, rows, from, count);
    } else {
      stageRows<4>(begin, rows, from, count);
    }
    __syncwarp();
  }
  /// Likewise, with one access for kTogetherRows rows.
  template <int kTogetherRows>
  __device__ void stageRows(int64_t begin, int rows, int from, int count) const {
    constexpr int kWidth = kRows / kTogetherRows;
    const MatrixView<const float> in = r_.input.in;
    const int input = lane_ % kWidth;
    const int row = lane_ / kWidth;
    const float *own = in.data + (begin + row) * in.rowStride + (from + input) * in.colStride;
    const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(memory_)) +
                    (row * kStride + input) * static_cast<uint32_t>(sizeof(float));
    const int64_t next = kTogetherRows * in.rowStride;
    const int left = input < count ? rows - row : 0;
#pragma unroll 8
    for (int i = 0; i < kWidth; ++i, own += next)
      copyWordAsync(to + i * kTogetherRows * kStride * static_cast<uint32_t>(sizeof(float)), own,
                    i * kTogetherRows < left);
    endCopyGroup();
    awaitCopies<0>();
  }

  __device__ static uint32_t bitsOfMagnitude(float x) { return __float_as_uint(x) & 0x7FFFFFFFU; }

  /// The largest bits of |input| of each lane's row, a few rows at a time by the whole warp.
  __device__ uint32_t largestBits(int64_t begin, int rows) const {
    constexpr int kAtOnce = 4;
    const MatrixView<const float> in = r_.input.in;
    const auto inputs = static_cast<int>(in.cols);
    uint32_t own = 0;
#pragma unroll 1
    for (int first = 0; first < rows; first += kAtOnce) {
      const float *from[kAtOnce];
      uint32_t bits[kAtOnce] = {};
#pragma unroll
      for (int q = 0; q < kAtOnce; ++q)
        from[q] = in.data + (begin + pulsora::min(first + q, rows - 1)) * in.rowStride;
#pragma unroll 2
      for (int j = lane_; j < inputs; j += kRows) {
#pragma unroll
        for (int q = 0; q < kAtOnce; ++q)
          bits[q] = pulsora::max(bits[q], bitsOfMagnitude(from[q][j * in.colStride]));
      }
#pragma unroll
      for (int q = 0; q < kAtOnce; ++q) {
        const uint32_t largest = largestOfWarp(bits[q]);
        if (lane_ == first + q) own = largest;
      }
    }
    return own;
  }
  __device__ static uint32_t largestOfWarp(uint32_t value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    for (int half = kRows / 2; half > 0; half /= 2)
      value = pulsora::max(value, __shfl_xor_sync(kWarp, value, half));
    return value;
#else
    return __reduce_max_sync(kWarp, value);
#endif
  }

  /// Finds the scale of each row, and writes its state.
  __device__ MeasuredRow measure(int64_t begin, int rows, int64_t row, bool isRow) const {
    const InputStage &s = r_.input;
    const auto inputs = static_cast<int>(s.in.cols);
    uint32_t bits = 0;  // the largest of those of |input|; those of a NaN are above infinity's
    if (inputs > kChunk) {
      bits = largestBits(begin, rows);
    } else {
      stage(begin, rows, 0, inputs);
      const float *own = memory_ + lane_ * kStride;
      const float *const end = own + inputs;
#pragma unroll 4
      for (; own < end; ++own) bits = pulsora::max(bits, bitsOfMagnitude(*own));
    }
    const bool bad = bits >= 0x7F800000U;
    if (bad && s.nonfiniteFlag) *s.nonfiniteFlag = 1;
    const float largest = bad ? kInfinity : __uint_as_float(bits);
    return {largest, isRow ? prepared(s, row, s.in.row(row), largest, true) : 1.0f};
  }

  /// Adds the products of a chunk's inputs, which convert(x) converts, with the factors `w`. Those
  /// of a group beyond the last input are 0.
  template <class Convert>
  __device__ void addChunk(int count, const Factor *w, Sum (&sums)[kLines],
                           const Convert &convert) const {
    const float *own = memory_ + lane_ * kStride;
    const float *const end = own + count;
    constexpr int kTurns = kInputs > 1 ? 1 : 2;
#pragma unroll kTurns
    for (; own < end; own += kInputs, w += kFactors * stride_) {
      float inputs[kInputs];
#pragma unroll
      for (int e = 0; e < kInputs; ++e) inputs[e] = convert(own[e]);
      const auto packed = product_.pack(inputs);
#pragma unroll
      for (int l = 0; l < kLines; l += kTogether) {
        Factors here[kFactors];
#pragma unroll
        for (int d = 0; d < kFactors; ++d)
          here[d] = *reinterpret_cast<const Factors *>(w + d * stride_ + l);
#pragma unroll
        for (int q = 0; q < kTogether; ++q) {
          Factor factors[kFactors];
#pragma unroll
          for (int d = 0; d < kFactors; ++d) factors[d] = here[d].of[q];
          Product::add(sums[l + q], packed, factors);
        }
      }
    }
  }

  /// Makes the results of `count` lines from `first` on from their sums. Returns whether a line of
  /// the row left the range of the ADC.
  __device__ bool finish(int64_t begin, int rows, int first, int count, float scale,
                         const Sum (&sums)[kLines]) const {
    const OutputStage &s = r_.output;
    const uint64_t sample = s.draws.firstSample + static_cast<uint64_t>(begin) + lane_;
    const uint64_t firstBlock = (sample - lane_) >> 3;
    const uint32_t *words = reinterpret_cast<const uint32_t *>(memory_);
    __syncwarp();  // all inputs are used
    if (s.noisy) {
      drawWords(firstBlock, first, count);
      words += ((sample >> 3) - firstBlock) * 4 + (sample >> 1 & 3);
    }
    float *own = results() + lane_ * kResultsOfRow;
#pragma unroll
    for (int l = 0; l < kLines; ++l) own[l] = product_.result(sums[l]);
    __syncwarp();
    bool clipped = false;
#pragma unroll 1
    for (int l = 0; l < count; ++l) {
      float z = 0.0f;
      if (s.noisy) {
        const NormalPair pair = normalPair16(words[l * kWordsOfLine]);
        z = (sample & 1) != 0 ? pair.z1 : pair.z0;
      }
      const Reading reading = digitised(s.converter, own[l], s.lineNoise[first + l], z, 0.0f);
      clipped |= reading.clipped != 0;
      own[l] = reading.value * scale;
    }
    __syncwarp();
    store(begin, rows, first, count);
    return clipped;
  }

  /// Puts the blocks of random numbers of all rows into shared memory, kMostBlocks for each line.
  __device__ void drawWords(uint64_t firstBlock, int first, int count) const {
    const StageDraws &d = r_.output.draws;
    auto *words = reinterpret_cast<uint4 *>(memory_);
    for (int n = lane_; n < count * kMostBlocks; n += kRows) {
      const Philox4 own = draw(d.key, d.noise, static_cast<uint64_t>(first + n / kMostBlocks),
                               firstBlock + n % kMostBlocks, drawIndex(0, 0));
      words[n] = make_uint4(own.v[0], own.v[1], own.v[2], own.v[3]);
    }
  }

  /// Stores the results of all rows, those of neighbouring lines and rows one after another.
  __device__ void store(int64_t begin, int rows, int first, int count) const {
    const MatrixView<float> out = r_.output.out;
    int row = lane_ / count;
    int line = lane_ - row * count;
    const int rowStep = kRows / count;
    const int lineStep = kRows - rowStep * count;
    while (row < rows) {
      out(begin + row, first + line) = results()[row * kResultsOfRow + line];
      row += rowStep;
      line += lineStep;
      if (line < count) continue;
      line -= count;
      ++row;
    }
  }

  __device__ float *results() const { return memory_ + kLines * kWordsOfLine; }

  /// Reads the rows of these lanes again, eight rows at a time.
  __device__ void repeat(int64_t begin, unsigned rows, float scale) const {
    __syncwarp();  // first results are stored before others take their place
    while (rows != 0) {
      const unsigned from = __fns(rows, 0, lane_ / kQuad + 1);
      const bool isRow = from < kRows;
      const float own = __shfl_sync(kWarp, scale, isRow ? static_cast<int>(from) : 0);
      const Quad quad{begin + from, lane_ % kQuad, 0xFu << lane_ / kQuad * kQuad};
      if (isRow) repeatShortRow<typename Product::Single>(r_, quad, own);
      for (int q = 0; q < kRows / kQuad && rows != 0; ++q) rows &= rows - 1;
      __syncwarp();
    }
  }

  const PlainRead &r_;
  Product product_;
  int lane_;
  int warp_;
  int stride_;
  float *memory_;
  Factor *factors_;
};

}  // namespace pulsora
