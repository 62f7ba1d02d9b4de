#pragma once

#include "cuda/core/async_copy.cuh"
#include "cuda/periphery/row_read.cuh"
#include "cuda/periphery/tile_of_rows.cuh"

// The assignment of a mini-batch's rows to the blocks of a kernel: classes with the same functions.

namespace pulsora {

/// A block per row.
struct BlockPerRow {
  static constexpr int kThreads = 512;
  static constexpr int kBlocks = 2;  // on a processor at once
  static unsigned blocksFor(int64_t rows) { return static_cast<unsigned>(rows); }
  static unsigned blocksToConvert(int64_t rows) { return blocksFor(rows); }

  /// Reads row `block` like readRow(). Then a warp calls use(row, the row's largest |input|, its
  /// results); lane 0 alone has the right maximum.
  template <class Product, class Use>
  __device__ static void read(const PlainRead &r, int64_t block, const Use &use) {
    __shared__ float results[kFewLines];
    const float largest = readRow<kThreads, Product>(r, block, results);
    if (threadIdx.x < 32) use(block, largest, results);
  }

  /// Converts entry `block` of the list of rows, and measures it before if `measureFirst`.
  __device__ static void convert(const InputStage &s, int64_t block, bool measureFirst) {
    convertTogether<kThreads>(s, block, measureFirst);
  }
};

/// A warp per row. The warps of a block share the weights, of which kLines lines by kInputs inputs
/// are in shared memory at a time, and wait for one another only there.
struct WarpPerRow {
  static constexpr int kThreads = 256;
  static constexpr int kBlocks = 3;
  static constexpr int kRows = kThreads / 32;
  static constexpr int kInputs = 512;
  static unsigned blocksFor(int64_t rows) {
    return static_cast<unsigned>((rows + kRows - 1) / kRows);
  }
  static unsigned blocksToConvert(int64_t rows) { return blocksFor(rows); }

  template <class Product, class Use>
  __device__ static void read(const PlainRead &r, int64_t block, const Use &use) {
    __shared__ Storage<Product> storage;
    const Product product(r);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int64_t row = block * kRows + warp;
    const bool isRow = row < r.input.in.rows;
    auto &results = storage.results[warp];
    auto &sums = storage.sums[warp];
    const MatrixView<const float> w = r.weights;
    const bool isOnePiece = w.rows <= kLines && w.cols <= kInputs;
    copyPiece(w, 0, 0, storage.weights);
    MeasuredRow measured{};
    if (isRow) measured = measureByWarp(r.input, row, true);
    float scale = measured.scale;
    bool reads = isRow;
    for (int round = 0;; ++round) {
      for (int64_t input0 = 0; input0 < w.cols; input0 += kInputs) {
        float inputs[kInputsOfLane];
        if (reads) convertPiece(r.input, row, input0, scale, round, inputs);
        for (int64_t line0 = 0; line0 < w.rows; line0 += kLines) {
          if (!isOnePiece && round + input0 + line0 > 0) {
            __syncthreads();  // the previous piece is still read
            copyPiece(w, line0, input0, storage.weights);
          }
          awaitCopies<0>();
          __syncthreads();
          if (!reads) continue;
          for (int64_t line = line0; line < pulsora::min(line0 + kLines, w.rows);
               line += kLinesAtOnce) {
            const auto sum =
                multiply(product, storage.weights + (line - line0), w.cols - input0, inputs);
            if (lane < kLinesAtOnce) sums[line + lane] = input0 > 0 ? sums[line + lane] + sum : sum;
          }
        }
      }
      bool clipped = false;
      __syncwarp();
      for (int64_t line = lane; reads && line < w.rows; line += 32) {
        const float sum = product.result(sums[line]);
        const Reading read = readingOf(r.output, row, line, sum, round);
        clipped |= read.clipped != 0;
        results[line] = read.value * (scale * r.output.outScale);
        r.output.out(row, line) = results[line];
      }
      reads = reads && round < r.repeats && __any_sync(0xFFFFFFFFU, clipped) != 0;
      if (__syncthreads_or(reads ? 1 : 0) == 0) break;
      if (reads && lane == 0) {
        scale = nextScale(r.input.state, row, scale);
        countRepeat(r.input.state);
      }
      scale = __shfl_sync(0xFFFFFFFFU, scale, 0);
    }
    if (isRow) use(row, measured.largest, results);
  }

  __device__ static void convert(const InputStage &s, int64_t block, bool measureFirst) {
    const int64_t k = block * kRows + static_cast<int>(threadIdx.x) / 32;
    if (k >= s.list.count) return;
    if (measureFirst) measureByWarp(s, s.list[k], true);
    __syncwarp();
    convertRow<32>(s, k, static_cast<int>(threadIdx.x) % 32);
  }

 private:
  static constexpr int kLines = 16;  // of the weights, in shared memory
  static constexpr int kLinesAtOnce = 8;
  static constexpr int kInputsOfLane = kInputs / 32;

  using Line = float[kInputs + 1];  // neighbouring lines begin in different banks
  template <class Product>
  struct Storage {
    Line weights[kLines];
    typename Product::Sum sums[kRows][kFewLines];
    float results[kRows][kFewLines];
  };

  /// Begins to copy the weights from line0 and input0 on; zeros beyond the last line or input.
  __device__ static void copyPiece(MatrixView<const float> all, int64_t line0, int64_t input0,
                                   Line (&to)[kLines]) {
    const int me = static_cast<int>(threadIdx.x);
    const int lines = static_cast<int>(pulsora::min(all.rows - line0, int64_t{kLines}));
    const MatrixView<const float> w =
        all.block(line0, input0, lines, pulsora::min(all.cols - input0, int64_t{kInputs}));
    const int needed = lines > kLinesAtOnce ? kLines : kLinesAtOnce;
    const int end = static_cast<int>((w.cols + 31) / 32 * 32);
    const bool linesAreAdjacent = w.rowStride == 1;
    const int firstLine = linesAreAdjacent ? me % needed : me / 32;
    const int firstInput = linesAreAdjacent ? me / needed : me % 32;
    const int lineStep = linesAreAdjacent ? needed : kThreads / 32;
    const int inputStep = linesAreAdjacent ? kThreads / needed : 32;
    for (int line = firstLine; line < needed; line += lineStep) {
      const bool there = line < lines;
      const float *from = w.data + (there ? line : 0) * w.rowStride;
#pragma unroll 8
      for (int j = firstInput; j < end; j += inputStep) {
        const bool isInput = there && j < w.cols;
        copyWordAsync(reinterpret_cast<uint32_t *>(&to[line][j]),
                      reinterpret_cast<const uint32_t *>(isInput ? from + j * w.colStride : w.data),
                      isInput);
      }
    }
    endCopyGroup();
  }

  /// Inputs input0 + lane, input0 + lane + 32, ... of a row through the DAC; zeros beyond its end.
  __device__ static void convertPiece(const InputStage &s, int64_t row, int64_t input0, float scale,
                                      int32_t round, float (&inputs)[kInputsOfLane]) {
    const int64_t lane = input0 + static_cast<int>(threadIdx.x) % 32;
    const int64_t end = pulsora::min(s.in.cols, input0 + kInputs);
    const auto load = [&](const VectorView<const float> &from) {
#pragma unroll
      for (int i = 0; i < kInputsOfLane; ++i)
        inputs[i] = lane + 32 * i < from.size ? from[lane + 32 * i] : 0.0f;
    };
    if (s.converter.noise > 0.0f || s.converter.dac.stochastic) {
      float *converted = s.converted + row * s.in.cols;
      for (int64_t j = lane; j < end; j += 32) converted[j] = drawnInput(s, row, j, scale, round);
      load({converted, s.in.cols});
      return;
    }
    load(s.in.row(row));
#pragma unroll
    for (int i = 0; i < kInputsOfLane; ++i)
      inputs[i] = convertedInput(s.converter, inputs[i], scale, 0.0f, 0.0f);
  }

  /// The sum of line l % kLinesAtOnce of `lines` in lane l.
  template <class Product>
  __device__ static typename Product::Sum multiply(const Product &product, const Line *lines,
                                                   int64_t size,
                                                   const float (&inputs)[kInputsOfLane]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    typename Product::Sum sum[kLinesAtOnce] = {};
#pragma unroll
    for (int i = 0; i < kInputsOfLane; ++i) {
      if (32 * i >= size) break;
      const auto u = product.input(inputs[i]);
#pragma unroll
      for (int q = 0; q < kLinesAtOnce; ++q)
        Product::add(sum[q], u, product.weight(lines[q][lane + 32 * i]));
    }
    return addLanes(sum);
  }
};

/// Calls launch(BlockPerRow or WarpPerRow). Few long rows have a block each: warps would leave most
/// of the GPU idle. The rows of the whole mini-batch determine the choice, and so the bits of sums.
template <class Launch>
void withRowsOf(const Context &context, int64_t inputs, int64_t rows, const Launch &launch) {
  constexpr int64_t kManyRows = 512;
  if (inputs <= WarpPerRow::kInputs || context.rowsOfBatch(rows) >= kManyRows) {
    launch(WarpPerRow{});
  } else {
    launch(BlockPerRow{});
  }
}

/// Calls launch(a class of rows, TypeOf<a product>) with the classes for reads of the same rows.
template <class Launch, class... More>
void withReadersOf(const Context &context, const Launch &launch, const PlainRead &read,
                   const More &...more) {
  if (TileOfRows::takes(read) && (TileOfRows::takes(more) && ...)) {
    launch(TileOfRows{}, TypeOf<IntegerProduct>{});
    return;
  }
  int64_t inputs = read.weights.cols;
  ((inputs = pulsora::max(inputs, more.weights.cols)), ...);
  withRowsOf(context, inputs, read.input.in.rows,
             [&](auto rows) { withProductOf(read, [&](auto product) { launch(rows, product); }); });
}

}  // namespace pulsora
