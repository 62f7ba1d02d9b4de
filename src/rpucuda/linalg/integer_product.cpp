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

struct Workspace {
  alignas(64) float weights[kBlockDepth * kMaxLanes];
  alignas(64) int16_t digits[2 * kBlockDepth * kMaxLanes];
  alignas(64) double acc[kBlockRows * kMaxLanes];
};

struct Product {
  const IntegerKernel &kernel;
  const GemmKernel &floats;
  MatrixView<const int16_t> levels;
  MatrixView<const float> weights;
  IntegerWeights integers;
  float unit;
  MatrixView<float> out;
  int digits;
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
    p.kernel.makeDigits(p.integers, p.digits, size / 2, w.data, w.rowStride, work.digits);
    return;
  }
  const int64_t padded = size + size % 2;
  if (cols.size < lanes || size < padded)
    std::fill(work.weights, work.weights + padded * lanes, 0.0f);
  p.floats.copy(work.weights, lanes, w.data, w.rowStride, w.colStride, w.rows, w.cols);
  p.kernel.makeDigits(p.integers, p.digits, padded / 2, work.weights, lanes, work.digits);
}

// One vector of outputs of a block of rows.
void multiplyVector(const Product &p, Part rows, Part cols, Workspace &work) {
  const int lanes = p.kernel.lanes;
  const int64_t parts = ceilDiv(rows.size, p.kernel.maxRows);
  std::fill(work.acc, work.acc + rows.size * lanes, 0.0);
  for (int64_t k = 0; k < p.levels.cols; k += p.depth) {
    const int64_t size = std::min(p.depth, p.levels.cols - k);
    makeDigits(p, cols, k, size, work);
    for (int64_t i = 0; i < parts; ++i) {
      const Part some = part(rows.size, 1, parts, i);
      p.kernel.micro[p.digits - 1][some.size - 1](
          ceilDiv(size, 2), p.levels.data + (rows.begin + some.begin) * p.levels.rowStride + k,
          p.levels.rowStride, work.digits, work.acc + some.begin * lanes);
    }
  }
  const MatrixView<float> out = p.out.block(rows.begin, cols.begin, rows.size, cols.size);
  p.kernel.store(work.acc, rows.size, cols.size, p.unit, out.data, out.rowStride, out.colStride);
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
  if (out.rows == 0 || out.cols == 0) return;
  const IntegerKernel &kernel = *withIsa(isa, [](auto i) { return &integerKernel<i>(); });
  const GemmKernel &floats = *withIsa(isa, [](auto i) { return &gemmKernel<i>(); });
  constexpr int64_t kLargestDigit = 2048;  // of two
  const auto whole = static_cast<int64_t>(integers.largest);
  const bool isOneDigit = integers.bits == 16 && deepest(whole, largestLevel) == kBlockDepth;
  const Product product{kernel,
                        floats,
                        levels,
                        weights,
                        integers,
                        unit,
                        out,
                        isOneDigit ? 1 : 2,
                        deepest(isOneDigit ? whole : kLargestDigit, largestLevel)};
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
    for (int64_t j = 0; j < cols.size; j += kernel.lanes) {
      const Part vector{cols.begin + j, std::min<int64_t>(kernel.lanes, cols.size - j)};
      multiplyVector(product, rows, vector, work);
    }
  }
}

}  // namespace pulsora
