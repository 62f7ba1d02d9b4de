#include "cuda/core/launch.cuh"
#include "lrtt/rest.h"

// The rows of A that hold cells, by the formulas of lrtt/rest.h.

namespace pulsora {
namespace {

constexpr int kHoldThreads = 256;
constexpr int kHoldWarps = kHoldThreads / 32;

/// A warp, whose lanes treat a row together.
struct WarpLanes {
  static constexpr int64_t kCount = 32;
  __device__ int64_t index() const { return threadIdx.x % 32; }
  __device__ void wait() const { __syncwarp(); }
  __device__ LargestMissing largest(LargestMissing mine) const {
#pragma unroll
    for (int other = 16; other > 0; other /= 2) {
      const auto cell = static_cast<long long>(mine.cell);
      mine.join({__shfl_xor_sync(0xFFFFFFFFU, cell, other),
                 __shfl_xor_sync(0xFFFFFFFFU, mine.size, other)});
    }
    return mine;
  }
};

template <int kJobs>
__global__ void __launch_bounds__(kHoldThreads)
    holdKernel(const __grid_constant__ Jobs<RowHolder, kJobs> jobs) {
  awaitEarlier();
  __shared__ HeldCells cells[kHoldWarps];
  const unsigned warp = threadIdx.x / 32;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kHoldWarps + warp;
  const RowHolder &holder = jobs.ofBlock();
  if (row < holder.r.rows) holder.hold(WarpLanes{}, row, cells[warp]);
}
constexpr JobKernel<RowHolder> kHoldKernel = {&holdKernel<1>, &holdKernel<kMostJobs<RowHolder>>};

}  // namespace

void cudaHoldRows(const Context &context, const RowHolder &holder) {
  if (holder.r.rows == 0) return;
  const CudaScope scope(context.device);
  const auto blocks = static_cast<unsigned>((holder.r.rows + kHoldWarps - 1) / kHoldWarps);
  launchJob(context.stream, kHoldKernel, blocks, kHoldThreads, 0, holder);
}

}  // namespace pulsora
