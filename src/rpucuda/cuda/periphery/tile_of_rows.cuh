#pragma once

#include <type_traits>

#include "cuda/periphery/byte_products.cuh"
#include "cuda/periphery/row_read.cuh"

namespace pulsora {

/// A block per 16 rows, whose products are made on the tensor cores: for long rows and products of
/// integers. Each warp takes 32 inputs at a time, in turn. Sums of integers do not depend on the
/// order, so the bits are those of every other class.
struct TileOfRows {
  static constexpr int kThreads = 256;
  static constexpr int kBlocks = 2;
  static unsigned blocksFor(int64_t rows) {
    return static_cast<unsigned>((rows + kRows - 1) / kRows);
  }
  static unsigned blocksToConvert(int64_t rows) { return static_cast<unsigned>(rows); }

  /// Whether a read can be made so, and is faster than with a block or a warp per row.
  static bool takes(const PlainRead &r) {
    constexpr int64_t kManyRows = 512;
    constexpr int64_t kLongRow = 1024;
    constexpr int64_t kLongestRow = 1 << 19;  // whose sums of 8 bits by 8 bits fit in 32 bits
    const InputStage &s = r.input;
    const bool isDrawn = s.converter.noise > 0.0f || s.converter.dac.stochastic;
    const bool haveOneByte = s.bytes.plane == 0;
    return r.integers.exist() && haveOneByte && !isDrawn && s.in.rows >= kManyRows &&
           r.weights.cols > kLongRow && r.weights.cols < kLongestRow && areInQuads(s.in);
  }

  template <class Product, class Use>
  __device__ static void read(const PlainRead &r, int64_t block, const Use &use) {
    static_assert(std::is_same_v<Product, IntegerProduct>, "bytes are integers");
    __shared__ Storage storage;
    const int me = static_cast<int>(threadIdx.x);
    const int64_t row0 = block * kRows;
    const Product product(r);
    measure(r.input, row0, storage);
    for (int round = 0;; ++round) {
      for (int64_t line0 = 0; line0 < r.weights.rows; line0 += kLines) {
        multiply(product, r, row0, line0, storage);
        __syncthreads();
        finish(product, r, row0, line0, round, storage);
        __syncthreads();  // the parts are still read
      }
      if (__syncthreads_or(me < kRows && readsAgain(r, row0, round, storage) ? 1 : 0) == 0) break;
    }
    for (int row = me / 32; row < kRows && row0 + row < r.input.in.rows; row += kWarps)
      use(row0 + row, storage.largest[row], storage.results[row]);
  }

  __device__ static void convert(const InputStage &s, int64_t block, bool measureFirst) {
    convertTogether<kThreads>(s, block, measureFirst);
  }

 private:
  static constexpr int kRows = 16;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kInputs = 32;    // of a warp at a time
  static constexpr int kTileLines = 8;  // of a product on the tensor cores
  static constexpr int kTiles = 2;
  static constexpr int kLines = kTiles * kTileLines;
  static constexpr int kDigits = 3;
  static_assert(kRows * kLines == kThreads, "a thread finishes a line of a row");

  using Parts = int64_t[kWarps][kRows][kLines];
  struct Storage {
    Parts parts;
    float results[kRows][kFewLines];
    float maxima[kWarps][kRows];
    float largest[kRows];
    float scale[kRows];
    bool reads[kRows];
    bool clipped[kRows];
  };

  /// Eight neighbours of a row, of which a lane takes the first at a multiple of 8.
  struct Eight {
    float4 half[2];

    /// `begin` may lie beyond the end of the row, whose size is a multiple of 4; any values stand
    /// for numbers there. Loads are not conditional, so that many are on their way at once.
    __device__ Eight(const float *row, int64_t size, int64_t begin) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int64_t j = begin + 4 * h;
        half[h] = *reinterpret_cast<const float4 *>(row + (j < size ? j : 0));
      }
    }
    /// Zeros stand for numbers beyond the end of this row.
    __device__ Eight(const VectorView<const float> &row, bool inQuads, int64_t begin) {
      float value[8];
      if (inQuads) {
        const Eight all(row.data, row.size, begin);
        keep(all.half[0], value);
        keep(all.half[1], value + 4);
      } else {
#pragma unroll
        for (int i = 0; i < 8; ++i) value[i] = row[begin + i < row.size ? begin + i : 0];
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) value[i] = begin + i < row.size ? value[i] : 0.0f;
      half[0] = make_float4(value[0], value[1], value[2], value[3]);
      half[1] = make_float4(value[4], value[5], value[6], value[7]);
    }

   private:
    __device__ static void keep(const float4 &from, float *to) {
      to[0] = from.x, to[1] = from.y, to[2] = from.z, to[3] = from.w;
    }
  };

  /// Whether rows of a matrix can be loaded four values at a time.
  PULSORA_HD static bool areInQuads(const MatrixView<const float> &m) {
    const auto place = reinterpret_cast<uintptr_t>(m.data);
    return m.colStride == 1 && m.cols % 4 == 0 && m.rowStride % 4 == 0 &&
           place % sizeof(float4) == 0;
  }
  /// Row `row` of a matrix, or its last one.
  __device__ static int64_t existing(const MatrixView<const float> &m, int64_t row) {
    return row < m.rows ? row : m.rows - 1;
  }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
  /// The two rows of a lane, counted from the block's first.
  __device__ static int rowOfLane(int which) { return lane() / 4 + 8 * which; }
  /// The first of a lane's inputs among the block's first ones.
  __device__ static int64_t firstInput() { return kInputs * warp() + lane() % 4 * 8; }

  /// Finds the largest |input| and the scale of each row, and sets the rows' state.
  __device__ static void measure(const InputStage &s, int64_t row0, Storage &storage) {
    float largest[2] = {};
    bool bad[2] = {};
    const float *rows[2];
#pragma unroll
    for (int which = 0; which < 2; ++which)
      rows[which] = &s.in(existing(s.in, row0 + rowOfLane(which)), 0);
#pragma unroll 2
    for (int64_t j = firstInput(); j < s.in.cols; j += kWarps * kInputs) {
#pragma unroll
      for (int which = 0; which < 2; ++which) {
        const Eight in(rows[which], s.in.cols, j);
#pragma unroll
        for (const float4 &four : in.half) {
          for (const float value : {four.x, four.y, four.z, four.w}) {
            largest[which] = reduce::AbsLargest::add(largest[which], value);
            bad[which] |= !isFinite(value);
          }
        }
      }
    }
#pragma unroll
    for (int which = 0; which < 2; ++which) {
      if (bad[which]) largest[which] = kInfinity;
      if (bad[which] && s.nonfiniteFlag) *s.nonfiniteFlag = 1;
      for (int half = 1; half < 4; half *= 2)
        largest[which] =
            pulsora::max(largest[which], __shfl_xor_sync(0xFFFFFFFFU, largest[which], half));
      if (lane() % 4 == 0) storage.maxima[warp()][rowOfLane(which)] = largest[which];
    }
    __syncthreads();
    if (const int64_t row = row0 + threadIdx.x; threadIdx.x < kRows) {
      float most = 0.0f;
      for (const auto &maxima : storage.maxima) most = pulsora::max(most, maxima[threadIdx.x]);
      const bool isRow = row < s.in.rows;
      storage.largest[threadIdx.x] = most;
      storage.scale[threadIdx.x] = isRow ? prepared(s, row, s.in.row(row), most, true) : 0.0f;
      storage.reads[threadIdx.x] = isRow;
      storage.clipped[threadIdx.x] = false;
    }
    __syncthreads();
  }

  /// The levels of four inputs, a byte each.
  __device__ static uint32_t bytesOf(const IntegerProduct &product, const float4 &levels) {
    uint32_t n[4];
    n[0] = static_cast<uint32_t>(product.input(levels.x));
    n[1] = static_cast<uint32_t>(product.input(levels.y));
    n[2] = static_cast<uint32_t>(product.input(levels.z));
    n[3] = static_cast<uint32_t>(product.input(levels.w));
    return __byte_perm(__byte_perm(n[0], n[1], 0x0040), __byte_perm(n[2], n[3], 0x0040), 0x5410);
  }

  /// A warp's parts of the sums of kLines lines from line0 on.
  __device__ static void multiply(const IntegerProduct &product, const PlainRead &r, int64_t row0,
                                  int64_t line0, Storage &storage) {
    const auto levelsOf = [&](int row) {
      return RowLevels(r.input.converter, storage.scale[row], storage.largest[row]);
    };
    const RowLevels levels[2] = {levelsOf(rowOfLane(0)), levelsOf(rowOfLane(1))};
    int sums[kTiles][kDigits][4] = {};
    if (__all_sync(0xFFFFFFFFU, levels[0].arePlain() && levels[1].arePlain()) != 0) {
      addInputs<true>(product, r, levels, row0, line0, sums);
    } else {
      addInputs<false>(product, r, levels, row0, line0, sums);
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        int64_t &part =
            storage.parts[warp()][rowOfLane(e / 2)][tile * kTileLines + lane() % 4 * 2 + e % 2];
        part = sums[tile][0][e] + int64_t{sums[tile][1][e]} * (1 << 8) +
               int64_t{sums[tile][2][e]} * (1 << 16);
      }
    }
  }

  /// Adds the warp's inputs to its sums, of which group g counts 2^(8 g).
  template <bool kPlain>
  __device__ static void addInputs(const IntegerProduct &product, const PlainRead &r,
                                   const RowLevels (&levels)[2], int64_t row0, int64_t line0,
                                   int (&sums)[kTiles][kDigits][4]) {
    const MatrixView<const float> in = r.input.in;
    const MatrixView<const float> w = r.weights;
    const bool weightsInQuads = areInQuads(w);
    const float *row[2];
#pragma unroll
    for (int which = 0; which < 2; ++which)
      row[which] = &in(existing(in, row0 + rowOfLane(which)), 0);
    constexpr int64_t kStep = kWarps * kInputs;
    const auto weightsOf = [&](int tile, int64_t j) {
      return Eight(w.row(existing(w, line0 + tile * kTileLines + lane() / 4)), weightsInQuads, j);
    };
    const int64_t mine = lane() % 4 * 8;
    Eight next[2] = {Eight(row[0], in.cols, firstInput()), Eight(row[1], in.cols, firstInput())};
    for (int64_t j = firstInput(); j - mine < in.cols; j += kStep) {
      const Eight x[2] = {next[0], next[1]};
      Eight v = weightsOf(0, j);
#pragma unroll
      for (int which = 0; which < 2; ++which) next[which] = Eight(row[which], in.cols, j + kStep);
      uint32_t a[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const RowLevels &rule = levels[i % 2];
        const float4 &four = x[i % 2].half[i / 2];
        a[i] = bytesOf(product, kPlain ? rule.plain(four) : rule.divided(four));
      }
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if (tile > 0) {
          if (line0 + tile * kTileLines >= w.rows) break;
          v = weightsOf(tile, j);
        }
        uint32_t b[2][kDigits];
#pragma unroll
        for (int h = 0; h < 2; ++h)
          digitsOf(product.integers, {v.half[h].x, v.half[h].y, v.half[h].z, v.half[h].w}, b[h]);
        multiplyBytes<true, false>(sums[tile][0], a, b[0][0], b[1][0]);
        multiplyBytes<true, false>(sums[tile][1], a, b[0][1], b[1][1]);
        multiplyBytes<true, true>(sums[tile][2], a, b[0][2], b[1][2]);
      }
    }
  }

  /// A thread makes the result of a line of a row.
  __device__ static void finish(const IntegerProduct &product, const PlainRead &r, int64_t row0,
                                int64_t line0, int round, Storage &storage) {
    const int row = static_cast<int>(threadIdx.x) / kLines;
    const int place = static_cast<int>(threadIdx.x) % kLines;
    const int64_t line = line0 + place;
    if (!storage.reads[row] || line >= r.weights.rows) return;
    int64_t sum = 0;
    for (const auto &part : storage.parts) sum += part[row][place];
    const Reading read = readingOf(r.output, row0 + row, line, product.result(sum), round);
    if (read.clipped != 0) storage.clipped[row] = true;
    const float result = read.value * (storage.scale[row] * r.output.outScale);
    storage.results[row][line] = result;
    r.output.out(row0 + row, line) = result;
  }

  /// Whether row threadIdx.x is read again, with another scale.
  __device__ static bool readsAgain(const PlainRead &r, int64_t row0, int round, Storage &storage) {
    const int row = static_cast<int>(threadIdx.x);
    const bool again = storage.reads[row] && storage.clipped[row] && round < r.repeats;
    storage.reads[row] = again;
    storage.clipped[row] = false;
    if (!again) return false;
    storage.scale[row] = nextScale(r.input.state, row0 + row, storage.scale[row]);
    countRepeat(r.input.state);
    return true;
  }
};

}  // namespace pulsora
