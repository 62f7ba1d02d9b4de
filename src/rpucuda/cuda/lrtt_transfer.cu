#include "core/backend.h"
#include "cuda/check.cuh"
#include "cuda/group.cuh"
#include "lrtt_transfer.h"

// A transfer's plan and its account on the GPU, by the formulas of lrtt_transfer_elements.h.

namespace RPU {
namespace {

/// A block per component; the one that finishes last places the trains of all.
__global__ void __launch_bounds__(kGroupLanes)
    planKernel(TransferPlanner planner, uint32_t *finished) {
  planner.planComponent(ThreadBlock{}, blockIdx.x);
  if (threadIdx.x != 0) return;
  __threadfence();
  if (atomicAdd(finished, 1u) + 1 < gridDim.x) return;
  __threadfence();
  planner.placeTrains();
  *finished = 0;
}

__global__ void __launch_bounds__(kGroupLanes) countKernel(TransferTally tally) {
  tally.count(ThreadBlock{});
}

constexpr int kAlignThreads = 256;
constexpr int kColumns = 4;  // of a lane at a time, so that loads overlap

/// A warp takes kRows rows, so that they share what is read of the factors; a lane takes the
/// columns that are a part of the sum.
template <int kRows>
__global__ void __launch_bounds__(kAlignThreads)
    alignKernel(MatrixView<const float> w, TransferFactors factors, float lr, double *aligned,
                double *squares) {
  static_assert(kSumLanes == 32, "a lane of a warp takes one part of the sum");
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t warp = (static_cast<int64_t>(blockIdx.x) * kAlignThreads + threadIdx.x) / 32;
  const int64_t row0 = warp * kRows;
  if (row0 >= w.rows) return;
  const float *wRow[kRows];
  const float *dRow[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t row = row0 + r < w.rows ? row0 + r : row0;
    wRow[r] = w.data + row * w.rowStride;
    dRow[r] = factors.d.data + row * factors.d.rowStride;
  }
  double along[kRows] = {};
  double square[kRows] = {};
  for (int64_t j0 = lane; j0 < w.cols; j0 += 32 * kColumns) {
    float t[kRows][kColumns] = {};
    float weight[kRows][kColumns];
    const float *x[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int64_t j = j0 + 32 * c < w.cols ? j0 + 32 * c : j0;
      x[c] = factors.x.data + j * factors.x.rowStride;
#pragma unroll
      for (int r = 0; r < kRows; ++r) weight[r][c] = wRow[r][j * w.colStride];
    }
#pragma unroll 4
    for (int64_t k = 0; k < factors.d.cols; ++k) {
      float line[kColumns];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) line[c] = x[c][k * factors.x.colStride];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float drive = dRow[r][k * factors.d.colStride];
#pragma unroll
        for (int c = 0; c < kColumns; ++c) t[r][c] = RPU::fma(drive, line[c], t[r][c]);
      }
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (j0 + 32 * c >= w.cols) break;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const double target = static_cast<double>(lr * t[r][c]);
        along[r] += static_cast<double>(weight[r][c]) * target;
        square[r] += target * target;
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    for (int half = 16; half > 0; half /= 2) {
      along[r] += __shfl_down_sync(0xFFFFFFFFU, along[r], half);
      square[r] += __shfl_down_sync(0xFFFFFFFFU, square[r], half);
    }
    if (lane != 0 || row0 + r >= w.rows) continue;
    aligned[row0 + r] = along[r];
    if (squares) squares[row0 + r] = square[r];
  }
}

template <int kRows>
void align(const Context &context, MatrixView<const float> weights, const TransferFactors &factors,
           float lr, double *aligned, double *squares) {
  const CudaScope scope(context.device);
  const int64_t warps = (weights.rows + kRows - 1) / kRows;
  const unsigned blocks = static_cast<unsigned>((warps * 32 + kAlignThreads - 1) / kAlignThreads);
  alignKernel<kRows>
      <<<blocks, kAlignThreads, 0, streamOf(context)>>>(weights, factors, lr, aligned, squares);
  RPU_CUDA(cudaGetLastError());
}

}  // namespace

void cudaPlanTransfer(const Context &context, const TransferPlanner &planner, uint32_t *finished) {
  const CudaScope scope(context.device);
  const auto rank = static_cast<unsigned>(planner.exact.d.cols);
  planKernel<<<rank, kGroupLanes, 0, streamOf(context)>>>(planner, finished);
  RPU_CUDA(cudaGetLastError());
}

void cudaAlignRows(const Context &context, MatrixView<const float> weights,
                   const TransferFactors &factors, float lr, double *aligned, double *squares) {
  constexpr int64_t kManyRows = 2048;  // of which a fourth is warps enough
  if (weights.rows >= kManyRows) {
    align<4>(context, weights, factors, lr, aligned, squares);
  } else {
    align<1>(context, weights, factors, lr, aligned, squares);
  }
}

void cudaCountTransfer(const Context &context, const TransferTally &tally) {
  const CudaScope scope(context.device);
  countKernel<<<1, kGroupLanes, 0, streamOf(context)>>>(tally);
  RPU_CUDA(cudaGetLastError());
}

}  // namespace RPU
