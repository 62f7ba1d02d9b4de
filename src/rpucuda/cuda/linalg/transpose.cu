#include "cuda/core/launch.cuh"
#include "linalg/matrix_functors.h"

namespace pulsora {
namespace {

constexpr int kSide = 32;  // of a tile: a warp reads one of its columns and writes one of its rows
constexpr int kWarps = 8;
constexpr int kThreads = kSide * kWarps;

template <class Src, class Dst, int kJobs>
__global__ void __launch_bounds__(kThreads)
    transposeKernel(const __grid_constant__ Jobs<ElementCopier<Src, Dst>, kJobs> jobs) {
  awaitEarlier();
  const ElementCopier<Src, Dst> &copier = jobs.ofBlock();
  __shared__ Dst tile[kSide][kSide + 1];  // one more, so that a column lies in different banks
  const MatrixView<const Src> from = copier.from;
  const MatrixView<Dst> to = copier.to;
  const int lane = static_cast<int>(threadIdx.x) % kSide;
  const int warp = static_cast<int>(threadIdx.x) / kSide;
  const int64_t across = (to.cols + kSide - 1) / kSide;
  const int64_t tiles = (to.rows + kSide - 1) / kSide * across;
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const int64_t row0 = t / across * kSide;
    const int64_t col0 = t % across * kSide;
    for (int k = warp; k < kSide; k += kWarps) {
      if (row0 + lane < to.rows && col0 + k < to.cols)
        tile[k][lane] = convertElement<Dst>(from(row0 + lane, col0 + k));
    }
    __syncthreads();
    for (int k = warp; k < kSide; k += kWarps) {
      if (row0 + k < to.rows && col0 + lane < to.cols) to(row0 + k, col0 + lane) = tile[lane][k];
    }
    __syncthreads();
  }
}
template <class Src, class Dst, class Copier = ElementCopier<Src, Dst>>
constexpr JobKernel<Copier> kTransposeKernel = {&transposeKernel<Src, Dst, 1>,
                                                &transposeKernel<Src, Dst, kMostJobs<Copier>>};

}  // namespace

template <class Src, class Dst>
void cudaTransposingCopy(const Context &context, const ElementCopier<Src, Dst> &copier) {
  if (copier.to.size() == 0) return;
  const int64_t tiles =
      (copier.to.rows + kSide - 1) / kSide * ((copier.to.cols + kSide - 1) / kSide);
  const CudaScope scope(context.device);
  launchJob(context.stream, kTransposeKernel<Src, Dst>, gridFor(tiles, 1), kThreads, 0, copier);
}

#define PULSORA_TRANSPOSE_ON_GPU(Src, Dst) \
  template void cudaTransposingCopy<Src, Dst>(const Context &, const ElementCopier<Src, Dst> &);
PULSORA_FOR_EACH_COPY(PULSORA_TRANSPOSE_ON_GPU)
#undef PULSORA_TRANSPOSE_ON_GPU

}  // namespace pulsora
