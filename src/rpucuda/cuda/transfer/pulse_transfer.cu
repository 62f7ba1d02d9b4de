#include "core/backend.h"
#include "cuda/core/group.cuh"
#include "cuda/core/last_block.cuh"
#include "cuda/core/launch.cuh"
#include "transfer/transfer_ledger.h"
#include "transfer/transfer_plan.h"

// A transfer's plan and its account on the GPU, by the formulas of transfer/plan_formulas.h.

namespace pulsora {
namespace {

struct Planning {
  TransferPlanner planner;
  uint32_t *finished;
};

/// A block per component; the block that finishes last places the pulse trains of all components.
template <int kJobs>
__global__ void __launch_bounds__(kGroupLanes)
    planKernel(const __grid_constant__ Jobs<Planning, kJobs> jobs) {
  awaitEarlier();
  const auto &[planner, finished] = jobs.ofBlock();
  planner.planComponent(ThreadBlock{}, blockIdx.x);
  if (finishesLast(finished, gridDim.x) && threadIdx.x == 0) planner.placeTrains();
}
constexpr JobKernel<Planning> kPlanKernel = {&planKernel<1>, &planKernel<kMostJobs<Planning>>};

template <int kJobs>
__global__ void __launch_bounds__(kGroupLanes)
    countKernel(const __grid_constant__ Jobs<TransferTally, kJobs> jobs) {
  awaitEarlier();
  jobs.ofBlock().count(ThreadBlock{});
}
constexpr JobKernel<TransferTally> kCountKernel = {&countKernel<1>,
                                                   &countKernel<kMostJobs<TransferTally>>};

constexpr int kAlignThreads = 128;
constexpr int kAlignRows = 2;  // per warp; its rows share the loads of the factors
constexpr int kColumns = 8;    // per lane at a time, so that loads overlap

/// Sums over the rows of a warp; each lane takes the columns of one part of the sums. kAdjacent:
/// the x factor's lines of one component are adjacent in memory.
template <bool kAdjacent>
struct RowAligner {
  const TransferFactors &factors;
  float lr;
  const float *weights[kAlignRows];
  const float *drives[kAlignRows];
  double along[kAlignRows] = {};
  double square[kAlignRows] = {};

  __device__ RowAligner(MatrixView<const float> w, const TransferFactors &f, float lr_,
                        int64_t row0)
      : factors(f), lr(lr_) {
#pragma unroll
    for (int r = 0; r < kAlignRows; ++r) {
      const int64_t row = pulsora::min(row0 + r, w.rows - 1);
      weights[r] = w.data + row * w.rowStride;
      drives[r] = f.d.data + row * f.d.rowStride;
    }
  }

  /// kCount columns of this lane, from j on. (A product of two floats is exact in double precision,
  /// so the sums equal sums of separate products.)
  template <int kCount>
  __device__ void add(int64_t j) {
    const int64_t xStride = kAdjacent ? 1 : factors.x.rowStride;
    float weight[kAlignRows][kCount];
    float t[kAlignRows][kCount] = {};
#pragma unroll
    for (int r = 0; r < kAlignRows; ++r) {
#pragma unroll
      for (int c = 0; c < kCount; ++c) weight[r][c] = weights[r][j + 32 * c];
    }
    const float *x = factors.x.data + j * xStride;
    const int rank = static_cast<int>(factors.d.cols);
#pragma unroll 4
    for (int k = 0; k < rank; ++k, x += factors.x.colStride) {
      float drive[kAlignRows];
#pragma unroll
      for (int r = 0; r < kAlignRows; ++r) drive[r] = drives[r][k * factors.d.colStride];
#pragma unroll
      for (int c = 0; c < kCount; ++c) {
        const float line = x[32 * c * xStride];
#pragma unroll
        for (int r = 0; r < kAlignRows; ++r) t[r][c] = pulsora::fma(drive[r], line, t[r][c]);
      }
    }
#pragma unroll
    for (int r = 0; r < kAlignRows; ++r) {
#pragma unroll
      for (int c = 0; c < kCount; ++c) {
        const double target = static_cast<double>(lr * t[r][c]);
        along[r] = __fma_rn(static_cast<double>(weight[r][c]), target, along[r]);
        square[r] = __fma_rn(target, target, square[r]);
      }
    }
  }
};

struct Alignment {
  MatrixView<const float> weights;
  TransferFactors factors;
  float lr;
  double *aligned;
  double *squares;
};

template <bool kAdjacent, int kJobs>
__global__ void __launch_bounds__(kAlignThreads, 4)
    alignKernel(const __grid_constant__ Jobs<Alignment, kJobs> jobs) {
  awaitEarlier();
  const auto &[w, factors, lr, aligned, squares] = jobs.ofBlock();
  static_assert(kSumLanes == 32, "a lane of a warp takes one part of the sum");
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t warp = (static_cast<int64_t>(blockIdx.x) * kAlignThreads + threadIdx.x) / 32;
  const int64_t row0 = warp * kAlignRows;
  if (row0 >= w.rows) return;
  RowAligner<kAdjacent> rows(w, factors, lr, row0);
  int64_t j = lane;
  for (; j + 32 * (kColumns - 1) < w.cols; j += 32 * kColumns) rows.template add<kColumns>(j);
  for (; j < w.cols; j += 32) rows.template add<1>(j);
#pragma unroll
  for (int r = 0; r < kAlignRows; ++r) {
    __syncwarp();
    for (int half = 16; half > 0; half /= 2) {
      rows.along[r] += __shfl_down_sync(0xFFFFFFFFU, rows.along[r], half);
      rows.square[r] += __shfl_down_sync(0xFFFFFFFFU, rows.square[r], half);
    }
    if (lane != 0 || row0 + r >= w.rows) continue;
    aligned[row0 + r] = rows.along[r];
    if (squares) squares[row0 + r] = rows.square[r];
  }
}
template <bool kAdjacent>
constexpr JobKernel<Alignment> kAlignKernel = {&alignKernel<kAdjacent, 1>,
                                               &alignKernel<kAdjacent, kMostJobs<Alignment>>};

}  // namespace

void cudaPlanTransfer(const Context &context, const TransferPlanner &planner, uint32_t *finished) {
  const CudaScope scope(context.device);
  const auto rank = static_cast<unsigned>(planner.exact.d.cols);
  launchJob(context.stream, kPlanKernel, rank, kGroupLanes, 0, Planning{planner, finished});
}

void cudaAlignRows(const Context &context, MatrixView<const float> weights,
                   const TransferFactors &factors, float lr, double *aligned, double *squares) {
  const CudaScope scope(context.device);
  PULSORA_CHECK(InputError, weights.colStride == 1, "the weights of an array lie row by row");
  constexpr int64_t kRowsOfBlock = kAlignThreads / 32 * kAlignRows;
  const auto blocks = static_cast<unsigned>((weights.rows + kRowsOfBlock - 1) / kRowsOfBlock);
  launchJob(context.stream, factors.x.rowStride == 1 ? kAlignKernel<true> : kAlignKernel<false>,
            blocks, kAlignThreads, 0, Alignment{weights, factors, lr, aligned, squares});
}

void cudaCountTransfer(const Context &context, const TransferTally &tally) {
  const CudaScope scope(context.device);
  launchJob(context.stream, kCountKernel, 1, kGroupLanes, 0, tally);
}

}  // namespace pulsora
