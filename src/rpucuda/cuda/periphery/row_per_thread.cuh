#pragma once

#include "cuda/periphery/short_row.cuh"

// Simple reads of many short rows, those of hasOutputNoiseAlone(). A thread takes a row: it finds
// the row's scale, converts its inputs, and makes its results for kLines lines at a time. Rows come
// through shared memory, so that neighbouring threads load neighbouring inputs. The weights of the
// array stay in shared memory, as factors, for all rows that a block takes. Rows that leave the
// range of the ADC are read again by quads of threads.

namespace pulsora {

template <class Product, int kLines>
class RowPerThread {
  using Factor = typename Product::Factor;
  using Sum = typename Product::Sum;

  static constexpr unsigned kWarp = 0xFFFFFFFFU;
  static constexpr int kRows = 32;            // of a warp
  static constexpr int kChunk = 32;           // inputs of a row that are in shared memory at a time
  static constexpr int kStride = kChunk + 1;  // of rows there, without conflicts of banks
  static constexpr int kWarps = kShortRowThreads / kRows;
  static constexpr int kMostBlocks = kRows / 8 + 1;  // of random numbers, for the rows of a warp
  /// Factors of neighbouring lines, which one access reads.
  static constexpr int kTogether = kLines < 4 ? kLines : 4;
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
    const int64_t factors = weights.cols * padded(weights.rows);
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
    const int all = stride_ * static_cast<int>(w.cols);
    for (int i = static_cast<int>(threadIdx.x); i < all; i += kShortRowThreads) {
      const int line = i % stride_;
      factors_[i] = product_.weight(line < w.rows ? w(line, i / stride_) : 0.0f);
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
        const Factor *w = factors_ + from * stride_ + line;
        if (plain) {
          addChunk(count, w, sums, [&](float x) { return levels.plain(x); });
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

  /// Puts `count` inputs of all rows into shared memory, from input `from` on.
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
    constexpr int kAhead = 8;  // values that are requested together
    const MatrixView<const float> in = r_.input.in;
    const int input = lane_ % kWidth;
    const int row = lane_ / kWidth;
    const bool isInput = input < count;
    const float *own = in.data + (begin + row) * in.rowStride + (from + input) * in.colStride;
    float *to = memory_ + row * kStride + input;
    const int64_t next = kTogetherRows * in.rowStride;
#pragma unroll 1
    for (int left = isInput ? rows - row : 0, i = 0; i < kWidth; i += kAhead) {
      float ahead[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k, own += next)
        ahead[k] = k * kTogetherRows < left ? *own : 0.0f;
#pragma unroll
      for (int k = 0; k < kAhead; ++k)
        if (isInput) to[k * kTogetherRows * kStride] = ahead[k];
      to += kAhead * kTogetherRows * kStride;
      left -= kAhead * kTogetherRows;
    }
  }

  /// Finds the scale of each row, and writes its state.
  __device__ MeasuredRow measure(int64_t begin, int rows, int64_t row, bool isRow) const {
    const InputStage &s = r_.input;
    const auto inputs = static_cast<int>(s.in.cols);
    uint32_t bits = 0;  // the largest of those of |input|; those of a NaN are above infinity's
#pragma unroll 1
    for (int from = 0; from < inputs; from += kChunk) {
      const int count = pulsora::min(inputs - from, kChunk);
      stage(begin, rows, from, count);
      const float *own = memory_ + lane_ * kStride;
#pragma unroll 4
      for (int j = 0; j < count; ++j)
        bits = pulsora::max(bits, __float_as_uint(own[j]) & 0x7FFFFFFFU);
    }
    const bool bad = bits >= 0x7F800000U;
    if (bad && s.nonfiniteFlag) *s.nonfiniteFlag = 1;
    const float largest = bad ? kInfinity : __uint_as_float(bits);
    return {largest, isRow ? prepared(s, row, s.in.row(row), largest, true) : 1.0f};
  }

  /// Adds the products of a chunk's inputs, which convert(x) converts, with the factors `w`.
  template <class Convert>
  __device__ void addChunk(int count, const Factor *w, Sum (&sums)[kLines],
                           const Convert &convert) const {
    const float *own = memory_ + lane_ * kStride;
#pragma unroll 2
    for (int j = 0; j < count; ++j, w += stride_) {
      const auto u = product_.input(convert(own[j]));
#pragma unroll
      for (int l = 0; l < kLines; l += kTogether) {
        const Factors here = *reinterpret_cast<const Factors *>(w + l);
#pragma unroll
        for (int q = 0; q < kTogether; ++q) Product::add(sums[l + q], u, here.of[q]);
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
    if (s.noisy) {
      drawWords(firstBlock, first, count);
      words += ((sample >> 3) - firstBlock) * 4 + (sample >> 1 & 3);
    }
    __syncwarp();
    bool clipped = false;
#pragma unroll
    for (int l = 0; l < kLines; ++l) {
      if (l >= count) break;
      float z = 0.0f;
      if (s.noisy) {
        const NormalPair pair = normalPair16(words[l * kWordsOfLine]);
        z = (sample & 1) != 0 ? pair.z1 : pair.z0;
      }
      const Reading reading =
          digitised(s.converter, product_.result(sums[l]), s.lineNoise[first + l], z, 0.0f);
      clipped |= reading.clipped != 0;
      results()[lane_ * kResultsOfRow + l] = reading.value * scale;
    }
    __syncwarp();
    store(begin, rows, first, count);
    return clipped;
  }

  /// Puts the blocks of random numbers of all rows into shared memory, kMostBlocks for each line.
  __device__ void drawWords(uint64_t firstBlock, int first, int count) const {
    const StageDraws &d = r_.output.draws;
    auto *words = reinterpret_cast<uint4 *>(memory_);
    __syncwarp();
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
      if (isRow) repeatShortRow<Product>(r_, quad, own);
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
