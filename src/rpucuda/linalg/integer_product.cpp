#include "linalg/integer_product.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/isa_dispatch.h"
#include "core/threads.h"
#include "linalg/gemm_kernel.h"
#include "linalg/integer_kernel.h"
#include "linalg/workspaces.h"

namespace pulsora {
namespace {

// A task multiplies at most kBlockRows rows by some vectors of outputs, one vector and kBlockDepth
// inputs at a time: 16 KiB of weights, as many of digits, and 32 KiB of sums.
constexpr int64_t kBlockRows = 256;
constexpr int64_t kBlockDepth = 256;
constexpr int64_t kBlockCols = 256;
constexpr int kMaxLanes = IntegerKernel::kMaxLanes;
constexpr int64_t kLargestSum = (int64_t{1} << 31) - 1;

// Few rows are multiplied output by output, kFewDepth inputs at a time.
constexpr int64_t kFewDepth = 2048;

struct Workspace {
  alignas(64) float weights[kBlockDepth * kMaxLanes];
  union {
    alignas(64) int16_t digits[2 * kBlockDepth * kMaxLanes];
    int16_t levels[IntegerKernel::kMaxRows * kFewDepth];
  };
  alignas(64) double acc[kBlockRows * kMaxLanes];
};
static_assert(IntegerKernel::kMaxRows * kBlockCols <= kBlockRows * kMaxLanes);

struct Product {
  const IntegerKernel &kernel;
  const GemmKernel &floats;
  MatrixView<const int16_t> levels;
  MatrixView<const float> weights;
  IntegerDigits digits;
  float unit;
  MatrixView<float> out;
  int64_t depth;  // inputs whose sums of digits stay below 2^31
};

int64_t deepest(int64_t largestDigit, int32_t largestLevel) {
  const int64_t pairs = kLargestSum / (2 * largestDigit * largestLevel);
  return 2 * std::min(pairs, kBlockDepth / 2);
}

// The digits of the weights of one vector of outputs, for the inputs [k, k + size); zeros beyond.
void makeDigits(const Product &p, Part cols, int64_t k, int64_t size, Workspace &work) {
  const int lanes = p.kernel.lanes;
  const MatrixView<const float> w = p.weights.block(cols.begin, k, cols.size, size).transposed();
  if (w.colStride == 1 && cols.size == lanes && size % 2 == 0) {
    p.kernel.makeDigits(p.digits, size / 2, w.data, w.rowStride, work.digits);
    return;
  }
  const int64_t padded = size + size % 2;
  if (cols.size < lanes || size < padded)
    std::fill(work.weights, work.weights + padded * lanes, 0.0f);
  p.floats.copy(work.weights, lanes, w.data, w.rowStride, w.colStride, w.rows, w.cols);
  p.kernel.makeDigits(p.digits, padded / 2, work.weights, lanes, work.digits);
}

// One vector of outputs of a block of rows.
void multiplyVector(const Product &p, Part rows, Part cols, Workspace &work) {
  const int lanes = p.kernel.lanes;
  const int64_t depth = p.levels.cols;
  const MatrixView<float> out = p.out.block(rows.begin, cols.begin, rows.size, cols.size);
  const bool isWhole = out.colStride == 1 && cols.size == lanes;
  // Digits in registers, if no other rows need them.
  const bool isFew = rows.size <= p.kernel.fewRows && p.weights.rowStride == 1 && isWhole;
  const int64_t parts = ceilDiv(rows.size, isFew ? p.kernel.fewRows : p.kernel.maxRows);
  int64_t k = 0;
  do {  // once even when the depth is 0
    const int64_t size = std::min(p.depth, depth - k);
    if (!isFew) makeDigits(p, cols, k, size, work);
    const bool direct = isWhole && k + size == depth;
    for (int64_t i = 0; i < parts; ++i) {
      const Part some = part(rows.size, 1, parts, i);
      const int16_t *levels = p.levels.data + (rows.begin + some.begin) * p.levels.rowStride + k;
      const IntegerSums to{p.digits.factor(),
                           work.acc + some.begin * lanes,
                           k == 0,
                           direct ? &out(some.begin, 0) : nullptr,
                           out.rowStride,
                           p.unit};
      if (isFew) {
        p.kernel.columns[p.digits.count - 1][some.size - 1](
            p.digits, size, p.weights.block(cols.begin, k, cols.size, size).data,
            p.weights.colStride, levels, p.levels.rowStride, to);
      } else {
        p.kernel.micro[p.digits.count - 1][some.size - 1](ceilDiv(size, 2), levels,
                                                          p.levels.rowStride, work.digits, to);
      }
    }
    k += size;
  } while (k < depth);
  if (!isWhole)
    p.kernel.store(work.acc, rows.size, cols.size, p.unit, out.data, out.rowStride, out.colStride);
}

// Few rows, all outputs of `cols`, where the weights of an output lie side by side.
void multiplyFew(const Product &p, Part rows, Part cols, Workspace &work) {
  const int64_t depth = std::min<int64_t>(kFewDepth, p.kernel.lanes * p.depth);
  const int64_t inputs = p.levels.cols;
  for (int64_t k = 0; k < inputs; k += depth) {
    const int64_t size = std::min(depth, inputs - k);
    for (int64_t r = 0; r < rows.size; ++r)
      p.kernel.interleave(p.levels.data + (rows.begin + r) * p.levels.rowStride + k, size,
                          work.levels + r * kFewDepth);
    const auto dots = p.kernel.dots[p.digits.count - 1][rows.size - 1];
    for (int64_t j = 0; j < cols.size; ++j)
      dots(p.digits, size, &p.weights(cols.begin + j, k), work.levels, kFewDepth, p.digits.factor(),
           k == 0, work.acc + j * rows.size);
  }
  for (int64_t j = 0; j < cols.size; ++j) {
    for (int64_t r = 0; r < rows.size; ++r)
      p.out(rows.begin + r, cols.begin + j) =
          static_cast<float>(work.acc[j * rows.size + r]) * p.unit;
  }
}

void multiplyBlock(const Product &p, Part rows, Part cols, Workspace &work) {
  const bool isDeep = p.levels.cols >= 4 * p.kernel.lanes;
  if (rows.size <= p.kernel.fewRows && p.weights.colStride == 1 && isDeep) {
    multiplyFew(p, rows, cols, work);
    return;
  }
  for (int64_t j = 0; j < cols.size; j += p.kernel.lanes) {
    const Part vector{cols.begin + j, std::min<int64_t>(p.kernel.lanes, cols.size - j)};
    multiplyVector(p, rows, vector, work);
  }
}

// How weights are cut into digits for inputs of this magnitude, and how many inputs can be summed.
IntegerDigits digitsFor(const IntegerWeights &integers, int32_t largestLevel, int64_t &depth) {
  const auto isDeep = [&](int64_t largestDigit) {
    depth = deepest(largestDigit, largestLevel);
    return depth == kBlockDepth;
  };
  if (integers.bits == 16 && isDeep(static_cast<int64_t>(integers.largest)))
    return {integers, 1, 16};
  if (isDeep(int64_t{1} << 15)) return {integers, 2, 16};
  isDeep(int64_t{1} << 11);
  return {integers, 2, 12};
}

}  // namespace

IntegerWeights integerWeights(int bits, double bound) {
  constexpr int kLeast = -96;
  constexpr int kMost = 96;
  const int magnitude = bits - 1;
  if (!(bound <= std::ldexp(1.0, kMost))) return {};
  int e = kLeast;
  if (bound > 0.0) std::frexp(bound, &e);  // 2^(e - 1) <= bound < 2^e
  e = std::max(e, kLeast);
  if (bound >= std::ldexp(1.0, e) - std::ldexp(0.5, e - magnitude)) ++e;
  return {bits, static_cast<float>(std::ldexp(1.0, magnitude - e)),
          static_cast<float>(std::ldexp(1.0, e - magnitude)),
          static_cast<float>(std::ldexp(1.0, magnitude) - 1.0)};
}

void integerProduct(MatrixView<const int16_t> levels, int32_t largestLevel,
                    MatrixView<const float> weights, const IntegerWeights &integers, float unit,
                    MatrixView<float> out, int threads, Isa isa) {
  PULSORA_CHECK(InputError,
                levels.cols == weights.cols && levels.rows == out.rows && weights.rows == out.cols,
                "integerProduct: inputs are [", levels.rows, ", ", levels.cols, "], weights [",
                weights.rows, ", ", weights.cols, "] and outputs [", out.rows, ", ", out.cols,
                "]; give inputs [m, K], weights [N, K] and outputs [m, N]");
  if (levels.cols == 0) {
    for (int64_t i = 0; i < out.rows; ++i) {
      for (int64_t j = 0; j < out.cols; ++j) out(i, j) = 0.0f;
    }
    return;
  }
  if (out.rows == 0 || out.cols == 0) return;
  // A vector of eight lanes has no idle ones.
  if (out.cols <= kMaxLanes / 2) isa = std::min(isa, Isa::V3);
  const IntegerKernel &kernel = *withIsa(isa, [](auto i) { return &integerKernel<i>(); });
  const GemmKernel &floats = *withIsa(isa, [](auto i) { return &gemmKernel<i>(); });
  int64_t depth = 0;
  const IntegerDigits digits = digitsFor(integers, largestLevel, depth);
  const Product product{kernel, floats, levels, weights, digits, unit, out, depth};
  constexpr int64_t kProductsPerStep = 8;  // of kStepsPerThread
  threads =
      threadsFor(threads, out.size() * levels.cols / (kProductsPerStep * kStepsPerThread) + 1);
  const int64_t vectors = ceilDiv(out.cols, kernel.lanes);
  const int64_t rowParts = ceilDiv(out.rows, kBlockRows);
  int64_t colParts = ceilDiv(out.cols, kBlockCols);
  colParts = std::min(vectors, std::max(colParts, ceilDiv(threads, rowParts)));
  Workspaces<Workspace> workspaces(threads);
  threads = workspaces.threads();
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
#endif
  for (int64_t task = 0; task < rowParts * colParts; ++task) {
    const StandardFloats standard;
    const Part rows = part(out.rows, 1, rowParts, task % rowParts);
    const Part cols = part(out.cols, kernel.lanes, colParts, task / rowParts);
    Workspace &work = workspaces.of(threads > 1 ? threadNumber() : 0);
    multiplyBlock(product, rows, cols, work);
  }
}

}  // namespace pulsora
