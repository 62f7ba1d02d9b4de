#include <cub/cub.cuh>
#include <type_traits>

#include "core/buffer.h"
#include "cuda/core/launch.cuh"
#include "numerics/cuda_numerics.h"
#include "numerics/math.h"

namespace pulsora {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;

struct Largest {
  __device__ float operator()(float a, float b) const { return pulsora::max(a, b); }
};

struct RowAbsMax {
  MatrixView<const float> a;
  float *out;
};

/// kRowThreads threads share a row: all of a block, or a warp. A maximum may be taken in any order.
template <int kRowThreads, int kJobs>
__global__ void __launch_bounds__(kThreads)
    rowAbsMaxKernel(const __grid_constant__ Jobs<RowAbsMax, kJobs> jobs) {
  constexpr int kRows = kThreads / kRowThreads;  // of a block at a time
  awaitEarlier();
  const auto &[a, out] = jobs.ofBlock();
  using Reduce = std::conditional_t<kRows == 1, cub::BlockReduce<float, kThreads>,
                                    cub::WarpReduce<float, kRowThreads>>;
  __shared__ typename Reduce::TempStorage storage[kRows];
  const int mine = static_cast<int>(threadIdx.x) / kRowThreads;
  const int lane = static_cast<int>(threadIdx.x) % kRowThreads;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kRows;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kRows + mine; i < a.rows; i += stride) {
    const VectorView<const float> row = a.row(i);
    float largest = 0.0f;
    for (int64_t j = lane; j < row.size; j += kRowThreads)
      largest = pulsora::max(largest, pulsora::abs(row[j]));
    largest = Reduce(storage[mine]).Reduce(largest, Largest{});
    if (lane == 0) out[i] = largest;
    if constexpr (kRows == 1) {
      __syncthreads();
    } else {
      __syncwarp();
    }
  }
}

template <int kRowThreads>
constexpr JobKernel<RowAbsMax> kRowAbsMaxKernel = {
    &rowAbsMaxKernel<kRowThreads, 1>, &rowAbsMaxKernel<kRowThreads, kMostJobs<RowAbsMax>>};

struct FiniteCheck {
  MatrixView<const float> first;
  MatrixView<const float> second;
  uint32_t *nonfiniteFlag;
};

constexpr int64_t kPiece = 512;  // elements of a row that a warp checks at a time

int64_t piecesOf(MatrixView<const float> a) { return a.rows * ((a.cols + kPiece - 1) / kPiece); }

/// blockIdx.y chooses the matrix.
template <int kJobs>
__global__ void __launch_bounds__(kThreads)
    checkFiniteKernel(const __grid_constant__ Jobs<FiniteCheck, kJobs> jobs) {
  awaitEarlier();
  const auto &[first, second, nonfiniteFlag] = jobs.ofBlock();
  const MatrixView<const float> a = blockIdx.y == 0 ? first : second;
  bool bad = false;
  const int64_t ofRow = (a.cols + kPiece - 1) / kPiece;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * (kThreads / kWarp);
  for (int64_t piece = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarp;
       piece < a.rows * ofRow; piece += stride) {
    const VectorView<const float> row = a.row(piece / ofRow);
    const int64_t begin = piece % ofRow * kPiece;
    const int64_t end = pulsora::min(begin + kPiece, row.size);
#pragma unroll 4
    for (int64_t j = begin + threadIdx.x % kWarp; j < end; j += kWarp) bad |= !isFinite(row[j]);
  }
  if (bad) *nonfiniteFlag = 1;  // all threads that write, write 1
}
constexpr JobKernel<FiniteCheck> kCheckFiniteKernel = {&checkFiniteKernel<1>,
                                                       &checkFiniteKernel<kMostJobs<FiniteCheck>>};

__global__ void __launch_bounds__(kThreads)
    countOutsideKernel(const float *w, const float *high, const float *low, int64_t size,
                       unsigned long long *out) {
  awaitEarlier();
  using Reduce = cub::BlockReduce<unsigned long long, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  unsigned long long count = 0;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < size;
       i += stride) {
    count += w[i] >= high[i] || w[i] <= low[i] ? 1U : 0U;
  }
  count = Reduce(storage).Sum(count);
  if (threadIdx.x == 0 && count) atomicAdd(out, count);
}

}  // namespace

namespace detail {

void cudaRowAbsMax(const Context &context, MatrixView<const float> a, float *out) {
  if (a.rows == 0) return;
  const CudaScope scope(context.device);
  constexpr int kWarpRows = kThreads / kWarp;
  if (a.cols < kThreads && a.rows >= kWarpRows) {  // most threads of a block would have no element
    launchJob(context.stream, kRowAbsMaxKernel<kWarp>, gridFor(a.rows, kWarpRows), kThreads, 0,
              RowAbsMax{a, out});
  } else {
    launchJob(context.stream, kRowAbsMaxKernel<kThreads>, gridFor(a.rows, 1), kThreads, 0,
              RowAbsMax{a, out});
  }
}

void cudaCheckFinite(const Context &context, MatrixView<const float> a, MatrixView<const float> b) {
  const int64_t pieces = pulsora::max(piecesOf(a), piecesOf(b));
  if (pieces == 0) return;
  const CudaScope scope(context.device);
  const dim3 grid(gridFor(pieces, kThreads / kWarp), b.size() > 0 ? 2 : 1);
  launchJob(context.stream, kCheckFiniteKernel, grid, kThreads, 0,
            FiniteCheck{a, b, context.nonfiniteFlag});
}

int64_t cudaCountOutside(const Context &context, const float *w, const float *high,
                         const float *low, int64_t size) {
  const CudaScope scope(context.device);
  Buffer<unsigned long long> count = Buffer<unsigned long long>::zeros(context, 1);
  launch(context.stream, countOutsideKernel, gridFor(size, 8 * kThreads), kThreads, 0, w, high, low,
         size, count.data());
  unsigned long long host = 0;
  copyToHost(context, &host, count.data(), sizeof host);
  return static_cast<int64_t>(host);
}

}  // namespace detail
}  // namespace pulsora
