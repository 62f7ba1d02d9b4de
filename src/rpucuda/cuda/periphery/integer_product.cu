#include "core/backend.h"
#include "cuda/core/launch.cuh"
#include "cuda/periphery/integer_shapes.cuh"
#include "periphery/read_kernels.h"

// The product of integers on the tensor cores: each block of the grid makes its share of the sums.

namespace pulsora {
namespace {

constexpr int64_t kMost = 1 << 30;     // lines, rows or inputs: they fit into 32 bits
constexpr int64_t kSmallBlocks = 264;  // two for each processor of an H100

struct Problem {
  IntegerProblem product;
  bool beside;  // whether to overlap the previous kernel
};

/// blockIdx.x is the block of the product; blockIdx.y is the part.
template <class S, int kJobs>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    integerProductKernel(const __grid_constant__ Jobs<Problem, kJobs> jobs) {
  const Problem &p = jobs.ofBlock();
  if (!p.beside) awaitEarlier();
  multiplyBlock<S>(p.product, static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y), [&] {
    if (p.beside) awaitEarlier();
  });
}

template <class S>
void multiply(const Context &context, Problem p, int64_t parts) {
  constexpr JobKernel<Problem> kernel = {&integerProductKernel<S, 1>,
                                         &integerProductKernel<S, kMostJobs<Problem>>};
  letShare(kernel, S::kSharedBytes);
  p.product.rowBlocks = static_cast<int>(blocksAlong(p.product.rows, S::kRows));
  const int64_t blocks = p.product.rowBlocks * blocksAlong(p.product.weights.rows, S::kLines);
  launchJob(context.stream, kernel,
            dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(parts)), S::kThreads,
            S::kSharedBytes, p);
}

template <class Size>
void multiplyIn(const Context &context, const Problem &p, int64_t parts) {
  const bool few = p.product.integers.bits == 16;  // digits
  if (p.product.weights.colStride == 1) {
    few ? multiply<Shape<Size, 2, true>>(context, p, parts)
        : multiply<Shape<Size, 3, true>>(context, p, parts);
  } else {
    few ? multiply<Shape<Size, 2, false>>(context, p, parts)
        : multiply<Shape<Size, 3, false>>(context, p, parts);
  }
}

}  // namespace

int64_t cudaIntegerParts(MatrixView<const float> weights, int64_t rows, bool oneByte, bool plain) {
  const int64_t depth = weights.cols;
  const int64_t necessary = necessaryParts(depth);
  if (!plain || takesLargeBlocks(rows, weights.rows, oneByte)) return necessary;
  const int64_t blocks =
      pulsora::max(blocksOf(rows, weights.rows, kSmallSide), int64_t{1}) * (oneByte ? 1 : 2);
  return pulsora::max(pulsora::min(kSmallBlocks / blocks, depth / kLeastDepth), necessary);
}

void cudaMultiplyIntegers(const Context &context, const LevelBytes &levels, int64_t rows,
                          MatrixView<const float> weights, const IntegerWeights &integers,
                          const IntegerSums &to, bool beside) {
  const CudaScope scope(context.device);
  if (rows == 0 || weights.rows == 0) return;
  PULSORA_CHECK(InputError, pulsora::max(rows, pulsora::max(weights.rows, weights.cols)) <= kMost,
                "a read of ", rows, " samples by an array [", weights.rows, ", ", weights.cols,
                "] is more than the GPU takes; use smaller batches");
  const int64_t parts = pulsora::max(to.parts, int64_t{1});
  if (to.digits.bytes > 0 && parts == 1 && rows >= kManyRows)
    return multiplyDigits(context, levels, rows, weights, integers, to);
  const IntegerProblem product{levels,
                               weights,
                               integers,
                               to.unit,
                               to.sums,
                               to.parts > 1 ? to.partial : nullptr,
                               static_cast<int>(rows),
                               static_cast<int>(depthOfPart(weights.cols, parts)),
                               0,
                               areInQuads(weights)};
  withBlockSize(context.device, levels, rows, weights.rows, [&](auto type) {
    multiplyIn<typename decltype(type)::Type>(context, {product, beside}, parts);
  });
  const int64_t size = rows * weights.rows;
  if (to.parts > 1 && to.joined) forEach(context, size, JoinParts{to, size});
}

}  // namespace pulsora
