#include "cuda/core/launch.cuh"
#include "forecast/truncated_svd.h"
#include "numerics/math.h"

// Small steps of a truncated decomposition, run on the GPU so that it need not wait for the host.

namespace pulsora {
namespace {

constexpr int kThreads = 256;
constexpr int kMost = static_cast<int>(kMostFactorLines);

/// One block, column by column. The remainder of a diagonal element must be safely above the
/// rounding error of its sums.
__global__ void __launch_bounds__(kThreads)
    inverseCholeskyKernel(int n, const double *gram, float *inverse, uint32_t *failed) {
  __shared__ double lower[kMost][kMost + 1];
  __shared__ double least[kMost];
  awaitEarlier();
  const auto thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < n * n; i += kThreads) lower[i / n][i % n] = gram[i];
  __syncthreads();
  for (int i = thread; i < n; i += kThreads) least[i] = 1e-11 * lower[i][i];
  for (int j = 0; j < n; ++j) {
    __syncthreads();
    const double rest = lower[j][j];
    if (!(rest > least[j])) {
      if (thread == 0) *failed = 1;
      for (int i = thread; i < n * n; i += kThreads) inverse[i] = 0.0f;
      return;
    }
    const double root = sqrt(rest);
    __syncthreads();
    for (int i = j + thread; i < n; i += kThreads) {
      lower[i][j] = i == j ? root : lower[i][j] / root;
    }
    __syncthreads();
    const int left = n - j - 1;
    for (int i = thread; i < left * left; i += kThreads) {
      const int row = j + 1 + i / left;
      const int col = j + 1 + i % left;
      if (col <= row) lower[row][col] -= lower[row][j] * lower[col][j];
    }
  }
  __syncthreads();
  // R = L^T, and R^-1 is the transpose of L^-1. A thread computes a column of L^-1 in the unused
  // half of the factor and in `least`.
  for (int column = thread; column < n; column += kThreads) {
    least[column] = 1.0 / lower[column][column];
    for (int i = column + 1; i < n; ++i) {
      double sum = lower[i][column] * least[column];
      for (int k = column + 1; k < i; ++k) sum += lower[i][k] * lower[column][k];
      lower[column][i] = -sum / lower[i][i];
    }
    for (int i = 0; i < n; ++i) {
      const double value = i < column ? 0.0 : (i == column ? least[column] : lower[column][i]);
      inverse[column * n + i] = static_cast<float>(value);
    }
  }
}

/// A block for each row.
__global__ void __launch_bounds__(kThreads)
    settleSignsKernel(MatrixView<float> left, MatrixView<float> right) {
  __shared__ unsigned largestBits;
  __shared__ unsigned long long firstPlace;
  awaitEarlier();
  const auto thread = static_cast<int64_t>(threadIdx.x);
  const auto row = right.row(blockIdx.x);
  if (thread == 0) {
    largestBits = 0;
    firstPlace = ~0ULL;
  }
  __syncthreads();
  float largest = 0.0f;
  for (int64_t j = thread; j < row.size; j += kThreads) {
    largest = pulsora::max(largest, pulsora::abs(row[j]));
  }
  atomicMax(&largestBits, __float_as_uint(largest));  // bits of positive numbers are in their order
  __syncthreads();
  const float nearly = kNearlyLargest * __uint_as_float(largestBits);
  for (int64_t j = thread; j < row.size; j += kThreads) {
    if (pulsora::abs(row[j]) >= nearly) {
      atomicMin(&firstPlace, static_cast<unsigned long long>(j));
      break;
    }
  }
  __syncthreads();
  const bool changes = row[static_cast<int64_t>(firstPlace)] < 0.0f;
  __syncthreads();
  if (!changes) return;
  for (int64_t j = thread; j < row.size; j += kThreads) row[j] = -row[j];
  for (int64_t j = thread; j < left.cols; j += kThreads) {
    left(blockIdx.x, j) = -left(blockIdx.x, j);
  }
}

}  // namespace

void cudaInverseCholesky(const Context &context, int64_t n, const double *gram, float *inverse,
                         uint32_t *failed) {
  const CudaScope scope(context.device);
  launch(context.stream, &inverseCholeskyKernel, 1, kThreads, 0, static_cast<int>(n), gram, inverse,
         failed);
}

void cudaSettleSigns(const Context &context, MatrixView<float> left, MatrixView<float> right) {
  const CudaScope scope(context.device);
  launch(context.stream, &settleSignsKernel, static_cast<unsigned>(right.rows), kThreads, 0, left,
         right);
}

}  // namespace pulsora
