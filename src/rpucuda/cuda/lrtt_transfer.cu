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
constexpr int kAlignBlocks = 4;  // a processor: the kernel waits for memory
constexpr int kColumns = 8;      // of a lane at a time, so that loads overlap

/// A warp per row; a lane takes the columns that are a part of the sum.
__global__ void __launch_bounds__(kAlignThreads, kAlignBlocks)
    alignKernel(MatrixView<const float> w, TransferFactors factors, float lr, double *aligned,
                double *squares) {
  static_assert(kSumLanes == 32, "a lane of a warp takes one part of the sum");
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * kAlignThreads + threadIdx.x) / 32;
  if (row >= w.rows) return;
  const float *weights = w.data + row * w.rowStride;
  const float *drives = factors.d.data + row * factors.d.rowStride;
  const int rank = static_cast<int>(factors.d.cols);
  double along = 0.0;
  double square = 0.0;
  for (int64_t j0 = lane; j0 < w.cols; j0 += 32 * kColumns) {
    float t[kColumns] = {};
    float weight[kColumns];
    const float *x[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int64_t j = j0 + 32 * c < w.cols ? j0 + 32 * c : j0;
      x[c] = factors.x.data + j * factors.x.rowStride;
      weight[c] = weights[j * w.colStride];
    }
#pragma unroll 2
    for (int k = 0; k < rank; ++k) {
      const float drive = drives[k * factors.d.colStride];
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        t[c] = RPU::fma(drive, x[c][k * factors.x.colStride], t[c]);
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (j0 + 32 * c >= w.cols) break;
      const double target = static_cast<double>(lr * t[c]);
      along += static_cast<double>(weight[c]) * target;
      square += target * target;
    }
  }
  for (int half = 16; half > 0; half /= 2) {
    along += __shfl_down_sync(0xFFFFFFFFU, along, half);
    square += __shfl_down_sync(0xFFFFFFFFU, square, half);
  }
  if (lane != 0) return;
  aligned[row] = along;
  if (squares) squares[row] = square;
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
  const CudaScope scope(context.device);
  const auto blocks =
      static_cast<unsigned>((32 * weights.rows + kAlignThreads - 1) / kAlignThreads);
  alignKernel<<<blocks, kAlignThreads, 0, streamOf(context)>>>(weights, factors, lr, aligned,
                                                               squares);
  RPU_CUDA(cudaGetLastError());
}

void cudaCountTransfer(const Context &context, const TransferTally &tally) {
  const CudaScope scope(context.device);
  countKernel<<<1, kGroupLanes, 0, streamOf(context)>>>(tally);
  RPU_CUDA(cudaGetLastError());
}

}  // namespace RPU
