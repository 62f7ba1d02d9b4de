#include <algorithm>

#include "core/buffer.h"
#include "cuda/core/launch.cuh"
#include "cuda/forecast/rollout_block.cuh"
#include "forecast/gru_kernels.h"

// A rollout in one launch. A cluster of blocks takes one member and up to 12 rows. Each block owns
// some hidden units: the weights of its units stay in its shared memory over all steps, and so does
// the state of all units, which the blocks send each other. Within a product every thread adds up
// four columns for half of the rows over a part of the lines; the parts are added in order.

namespace pulsora {

using namespace rollouts;

namespace {

constexpr size_t kMostShared = size_t{227} << 10;

__global__ void __launch_bounds__(kThreads)
    encodeKernel(MatrixView<const float> x, MatrixView<const float> encoder, const float *bias,
                 MatrixView<float> out) {
  letNextBegin();
  awaitEarlier();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= out.size()) return;
  const int64_t row = i / out.cols;
  const int64_t o = i % out.cols;
  float sums[1];
  encodeRows(x, row, 1, encoder.data, out.cols, bias, o, sums);
  out(row, o) = rectified(sums[0]);
}

template <int kRows, bool kResident>
__global__ void __launch_bounds__(kThreads, 1) rolloutKernel(const __grid_constant__ Problem p) {
  extern __shared__ float4 shared[];
  letNextBegin();
  awaitEarlier();
  Block<kRows, kResident>(p, reinterpret_cast<float *>(shared)).run();
}

template <int kRows, bool kResident>
void launchRollout(const Context &context, const Problem &p) {
  const auto kernel = &rolloutKernel<kRows, kResident>;
  const size_t bytes = sizeof(float) * SharedLayout<kRows>(p.division, kResident).size;
  PULSORA_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(bytes)));
  const int64_t blocks = p.shape.members * p.division.rowParts * p.division.blocks;
  launchClusters(context.stream, kernel, dim3(static_cast<unsigned>(blocks)), kThreads, bytes,
                 static_cast<unsigned>(p.division.blocks), p);
}

template <int kRows>
bool rollOut(const Context &context, Problem p, size_t room) {
  if (sizeof(float) * SharedLayout<kRows>(p.division, true).size <= room) {
    launchRollout<kRows, true>(context, p);
    return true;
  }
  if (sizeof(float) * SharedLayout<kRows>(p.division, false).size > room) return false;
  const Division &d = p.division;
  const int64_t blocks = p.shape.members * d.rowParts * d.blocks;
  Buffer<float> packed(context, blocks * d.allLines() * kGates * d.units);
  p.packed = packed.data();
  launchRollout<kRows, false>(context, p);
  return true;
}

}  // namespace

bool cudaEncode(const Context &context, MatrixView<const float> x, MatrixView<const float> encoder,
                VectorView<const float> bias, MatrixView<float> out) {
  constexpr int64_t kMostTerms = int64_t{1} << 22;  // for more, a product is faster
  if (!encoder.isRowMajor() || encoder.rowStride != encoder.cols ||
      out.size() > kMostTerms / pulsora::max(x.cols, int64_t{1})) {
    return false;
  }
  const CudaScope scope(context.device);
  launch(context.stream, &encodeKernel, gridFor(out.size(), kThreads), kThreads, 0, x, encoder,
         bias.data, out);
  return true;
}

bool cudaRollout(const Context &context, const EnsembleShape &shape, const EnsembleWeights &weights,
                 MatrixView<const float> features, const float *first, int64_t steps, bool feedback,
                 const RolloutOutputs &out, const RolloutOptions &options) {
  constexpr int64_t kMostEncoded = 4096;  // more do not fit in shared memory
  constexpr int64_t kMostBlocks = int64_t{1} << 30;
  constexpr int kLong = 6;  // rows of half a cluster
  constexpr int kShort = 2;
  if (shape.normalised || shape.encoded > kMostEncoded ||
      features.rows > kMostBlocks / shape.members / 8)
    return false;
  const CudaScope scope(context.device);
  int room = 0;
  int processors = 0;
  PULSORA_CUDA_CHECK(
      cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, context.device));
  PULSORA_CUDA_CHECK(
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, context.device));
  const auto hidden = static_cast<int>(shape.hidden);
  int blocks = launchesOverlap() ? kMostBlocksOfCluster : 1;  // clusters, too, need compute 9.0
  while (blocks > 1 && blocks * 4 > hidden) blocks /= 2;
  const int units = ((hidden + blocks - 1) / blocks + 3) / 4 * 4;
  const auto partsOf = [&](int half) { return (features.rows + 2 * half - 1) / (2 * half); };
  const bool fewRows = shape.members * partsOf(kShort) * blocks <= processors;
  const auto rowParts = static_cast<int>(partsOf(fewRows ? kShort : kLong));
  const Division division{blocks, units, blocks * units, static_cast<int>(shape.encoded), rowParts};
  const Problem p{shape,    weights, features, first,    static_cast<int>(steps),
                  feedback, out,     options,  division, nullptr};
  const size_t bytes = std::min(static_cast<size_t>(room), kMostShared);
  return fewRows ? rollOut<kShort>(context, p, bytes) : rollOut<kLong>(context, p, bytes);
}

}  // namespace pulsora
