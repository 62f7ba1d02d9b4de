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

// A task multiplies at most kBlockRows rows by some vectors of outputs, one vector and kDepth
// inputs at a time: 16 KiB of weights, as many of digits, and 32 KiB of sums.
constexpr int64_t kBlockRows = 256;
constexpr int64_t kBlockCols = 256;
constexpr int64_t kDepth = 256;
constexpr int64_t kLargestSum = (int64_t{1} << 31) - 1;
constexpr int kMaxLanes = IntegerKernel::kMaxLanes;

// Up to kFewRows rows have the sums of many outputs in memory, kFewSums for each digit, and the
// weights pass once, input by input where they lie so. (Steps of 2 KiB from row to row, as in an
// array of 512 outputs, are the worst for a cache.) kFewDepth inputs are summed before digits are
// joined.
constexpr int64_t kFewRows = 8;
constexpr int64_t kFewSums = 2048;
constexpr int64_t kFewDepth = 2048;
constexpr int64_t kStep = 2 * IntegerKernel::kPairs;

struct Workspace {
  alignas(64) float weights[kDepth * kMaxLanes];
  union {
    alignas(64) int16_t digits[2 * kDepth * kMaxLanes];
    int32_t sums[2 * kFewSums];
  };
  alignas(64) int16_t levels[kFewRows * kFewDepth];
  alignas(64) double acc[kBlockRows * kMaxLanes];
};
static_assert(kFewSums <= kBlockRows * kMaxLanes);

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

// The digits of the weights of one vector of outputs, for the inputs [k, k + size); zeros beyond.
void makeDigits(const Product &p, Part cols, int64_t k, int64_t size, Workspace &work) {
  const int lanes = p.kernel.lanes;
  const auto make = p.kernel.makeDigits[static_cast<int>(p.digits.cut)];
  const MatrixView<const float> w = p.weights.block(cols.begin, k, cols.size, size).transposed();
  if (w.colStride == 1 && cols.size == lanes && size % 2 == 0) {
    make(p.digits, size / 2, w.data, w.rowStride, work.digits);
    return;
  }
  const int64_t padded = size + size % 2;
  if (cols.size < lanes || size < padded)
    std::fill(work.weights, work.weights + padded * lanes, 0.0f);
  p.floats.copy(work.weights, lanes, w.data, w.rowStride, w.colStride, w.rows, w.cols);
  make(p.digits, padded / 2, work.weights, lanes, work.digits);
}

// One vector of outputs of a block of rows. Digits go through memory, and sums are in registers.
void multiplyVector(const Product &p, Part rows, Part cols, Workspace &work) {
  const int lanes = p.kernel.lanes;
  const int64_t inputs = p.levels.cols;
  const int64_t depth = std::min(p.depth, kDepth);
  const MatrixView<float> out = p.out.block(rows.begin, cols.begin, rows.size, cols.size);
  const bool isWhole = out.colStride == 1 && cols.size == lanes;
  const int64_t parts = ceilDiv(rows.size, p.kernel.maxRows);
  for (int64_t k = 0; k < inputs; k += depth) {
    const int64_t size = std::min(depth, inputs - k);
    makeDigits(p, cols, k, size, work);
    const bool direct = isWhole && k + size == inputs;
    for (int64_t i = 0; i < parts; ++i) {
      const Part some = part(rows.size, 1, parts, i);
      const DigitSums to{p.digits.factor(),
                         work.acc + some.begin * lanes,
                         k == 0,
                         direct ? &out(some.begin, 0) : nullptr,
                         out.rowStride,
                         p.unit};
      // Parts have 1 to kernel.maxRows rows, which the analyzer does not know.
      // NOLINTNEXTLINE(clang-analyzer-security.ArrayBound)
      p.kernel.micro[p.digits.count() - 1][some.size - 1](ceilDiv(size, 2),
                                                          &p.levels(rows.begin + some.begin, k),
                                                          p.levels.rowStride, work.digits, to);
    }
  }
  if (!isWhole)
    p.kernel.store(work.acc, rows.size, cols.size, p.unit, out.data, out.rowStride, out.colStride);
}

void multiplyMany(const Product &p, Part rows, Part cols, Workspace &work) {
  for (int64_t j = 0; j < cols.size; j += p.kernel.lanes)
    multiplyVector(p, rows, {cols.begin + j, std::min<int64_t>(p.kernel.lanes, cols.size - j)},
                   work);
}

// Few rows and some outputs. A step takes `step` inputs; with `inLines`, a vector holds inputs of
// one output, else outputs.
struct FewRows {
  Part rows;
  Part cols;
  bool inLines;
  int64_t step;
  int64_t vectors;
};

// Copies the levels of the inputs [k, k + size), step by step, with zeros up to a whole step.
void packSteps(const Product &p, const FewRows &few, int64_t k, int64_t size, int16_t *to) {
  for (int64_t begin = k; begin < k + size; begin += few.step) {
    const int64_t some = std::min(few.step, k + size - begin);
    for (int64_t r = 0; r < few.rows.size; ++r, to += few.step) {
      const int16_t *from = &p.levels(few.rows.begin + r, begin);
      if (few.inLines) {
        p.kernel.interleave(from, some, to);
      } else if (some == kStep) {  // a literal size
        std::copy_n(from, kStep, to);
      } else {
        std::fill(std::copy_n(from, some, to), to + kStep, int16_t{0});
      }
    }
  }
}

// Adds products with the inputs [k, k + size) to work.sums. False if a weight has to be saturated.
bool addProducts(const Product &p, const FewRows &few, int64_t k, int64_t size, Workspace &work) {
  const auto cut = static_cast<size_t>(p.digits.cut);
  const auto add = few.inLines ? p.kernel.addLines[cut] : p.kernel.addColumns[cut];
  packSteps(p, few, k, size, work.levels);
  for (int64_t begin = 0; begin < size; begin += few.step) {
    const int64_t some = std::min(few.step, size - begin);
    MatrixView<const float> w = p.weights.block(few.cols.begin, k + begin, few.cols.size, some);
    if (!few.inLines) w = w.transposed();
    // Side by side: a step for each output, or all vectors of outputs for each input.
    const int64_t width = few.inLines ? few.step : few.vectors * p.kernel.lanes;
    const float *from = w.data;
    int64_t distance = w.rowStride;
    if (w.colStride != 1 || w.cols < width || some < few.step) {
      const int64_t lines = few.inLines ? few.vectors : few.step;
      std::fill(work.weights, work.weights + lines * width, 0.0f);
      p.floats.copy(work.weights, width, w.data, w.rowStride, w.colStride, w.rows, w.cols);
      from = work.weights;
      distance = width;
    }
    if (!add(p.digits, few.rows.size, few.vectors, from, distance,
             work.levels + begin * few.rows.size, work.sums))
      return false;
  }
  return true;
}

// Sums go through memory, and digits are in registers. False, and no output is changed, if a weight
// has to be saturated.
bool multiplyFew(const Product &p, const FewRows &few, Workspace &work) {
  const int64_t lanes = p.kernel.lanes;
  const int64_t rows = few.rows.size;
  for (int64_t k = 0; k < p.levels.cols; k += p.depth) {
    const int64_t size = std::min(p.depth, p.levels.cols - k);
    std::fill(work.sums, work.sums + few.vectors * rows * p.digits.count() * lanes, 0);
    if (!addProducts(p, few, k, size, work)) return false;
    const auto join = few.inLines ? p.kernel.joinLines : p.kernel.joinColumns;
    join(p.digits, few.vectors * rows, work.sums, k == 0, work.acc);
  }
  const MatrixView<float> out = p.out.block(few.rows.begin, few.cols.begin, rows, few.cols.size);
  if (few.inLines) {
    const double *sum = work.acc;
    for (int64_t j = 0; j < out.cols; ++j) {
      for (int64_t r = 0; r < rows; ++r) out(r, j) = static_cast<float>(*sum++) * p.unit;
    }
    return true;
  }
  for (int64_t j = 0; j < out.cols; j += lanes)
    p.kernel.store(work.acc + j * rows, rows, std::min(lanes, out.cols - j), p.unit, &out(0, j),
                   out.rowStride, out.colStride);
  return true;
}

// A task: some rows and columns.
void multiply(const Product &p, Part rows, Part cols, Workspace &work) {
  const int64_t lanes = p.kernel.lanes;
  const int64_t inputs = p.levels.cols;
  const bool inLines = p.weights.colStride == 1 && inputs >= kStep * lanes;
  const int64_t step = inLines ? kStep * lanes : kStep;
  const bool areFew = rows.size * ceilDiv(inputs, step) * step <= kFewRows * inputs;
  if (!areFew || !(inLines || p.weights.rowStride == 1)) {
    multiplyMany(p, rows, cols, work);
    return;
  }
  const int64_t copied = kDepth * kMaxLanes / step;
  const int64_t width = inLines ? std::min(kFewSums / (lanes * rows.size), copied)
                                : std::min(kFewSums / rows.size, copied) / kMaxLanes * kMaxLanes;
  for (int64_t j = 0; j < cols.size;) {
    Part some{cols.begin + j, std::min(width, cols.size - j)};
    // A vector of outputs that is not whole goes by itself.
    if (!inLines && some.size > lanes) some.size = some.size / lanes * lanes;
    const int64_t vectors = inLines ? some.size : ceilDiv(some.size, lanes);
    if (!multiplyFew(p, {rows, some, inLines, step, vectors}, work))
      multiplyMany(p, rows, some, work);
    j += some.size;
  }
}

// How weights are cut into digits for inputs of this magnitude, and how many inputs can be summed.
IntegerDigits digitsFor(const IntegerWeights &integers, int32_t largestLevel, int64_t &depth) {
  const auto isDeep = [&](int64_t largestDigit) {
    depth = kLargestSum / (largestDigit * largestLevel);
    depth = depth < kDepth ? depth / 2 * 2 : std::min(depth / kDepth * kDepth, kFewDepth);
    return depth >= kDepth;
  };
  if (integers.bits == 16 && isDeep(static_cast<int64_t>(integers.largest)))
    return {integers, IntegerDigits::Cut::Whole};
  if (isDeep(int64_t{1} << 15)) return {integers, IntegerDigits::Cut::Low16};
  isDeep(int64_t{1} << 11);
  return {integers, IntegerDigits::Cut::Low12};
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
    multiply(product, rows, cols, work);
  }
}

}  // namespace pulsora
